# ruff: noqa: E501 - tables read better with one entry a line
"""Whose claim a statement is: what is quoted, played, joked or to be translated is not the user's own.

"I live in Paris" is the user's word; "translate: I live in Paris", "in my novel I live in Paris", "she thinks I
live in Paris" and "I live in Paris, just kidding" hold the same letters and claim nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from services.common.unicode import mixed
from services.memory.script import folded

FIRST_PERSON: Final = mixed(r"我|本人|咱|\b(?:i|my|we|our)\b", re.IGNORECASE)
_QUOTATION: Final = mixed(
    r"“[^”\n]{1,400}”|「[^」\n]{1,400}」|『[^』\n]{1,400}』|\"[^\"\n]{1,400}\""
    r"|(?<![\w'’])['‘](?=[A-Z我])[^'‘\n]{0,200}?(?:['’](?:m|s|ve|d|re|ll|t)\b[^'‘\n]{0,200}?){0,4}['’](?!\w)"
)

# Text that is handed over to be worked on: it and what follows it is material.
_TASK: Final = mixed(
    r"^\W*(?:please |pls |can you |could you |would you |help me |now )*(?:translate|proofread|rephrase|paraphrase|rewrite"
    r"|correct (?:this|the|my|these)|fix the grammar|check the grammar|improve (?:this|the)|polish|summari[sz]e (?:this|the)"
    r"|repeat after me|say exactly)\b"
    r"|^(?:请你?|麻烦你?|帮我|帮忙|能不能|可以|再){0,6}(?:[把将][^，。]{0,16}?)?(?:翻译(?:成|一下|下|为|这|以下|[:：]|$)|翻成|译成|译为"
    r"|润色|改写|校对|修改(?:一下)?(?:这|以下|下面)|造句|续写|仿写|复述)",
    re.IGNORECASE,
    words=False,
)
# A text is ordered: what the order itself says is its subject.
_ORDER: Final = mixed(
    r"^\W*(?:please |can you |could you |help me )*(?:write|draft|compose|generate) (?:me )?(?:an?|the|some|my) (?:[\w-]+ ){0,3}?(?:poem|story|essay|letter|song|bio|speech|e-?mail"
    r"|introduction|dialogue|paragraph|resume|cv|post|script|sentence|joke|lyrics)\b"
    r"|^(?:请你?|麻烦你?|帮我|帮忙|给我|能不能|可以|再){0,6}(?:写|编|生成|拟)(?:一)?(?:篇|段|首|个|封|份|则|句|下|些)"
    r"|以[“\"「][^”\"」]{1,40}[”\"」](?:开头|为题|结尾)",
    re.IGNORECASE,
    words=False,
)
_POINTS_BACK: Final = mixed(
    r"\b(?:that|this|it|the above)\b|上面|以上|这句|这段|前面", re.IGNORECASE
)
# Fiction, examples and other worlds.
_PLAYED: Final = mixed(
    r"\bin (?:my|the|this|a|our|that) (?:\w+ )?(?:novel|story|game|dream|movie|film|script|play|book|song|scenario|example|role-?play|scene|world)(?=,| i\b| my\b| we\b)"
    r"|\b(?:my|the|his|her) (?:main )?(?:character|hero|heroine|protagonist|narrator)\b"
    r"|\b(?:story|poem|essay|letter|song|sentence|email|dialogue|post) (?:that |which )?(?:begins?|starts?|beginning|starting|opens?|ends?)\b"
    r"|\b(?:the|this|that) (?:phrase|sentence|line|lyrics?|slogan)\b|\bgrammatically\b|\bhow (?:do|would|can) (?:you|i|we) say\b"
    r"|\b(?:assume|assuming|unless|as if|as though|even if|role-?play|pretending)\b"
    r"|^\W*(?:say|let's say|suppose|imagine) i(?:'m)?\b"
    r"|(?:小说|故事|游戏|梦|剧本|戏|电影|歌|副本|剧情)(?:里|中)(?:面)?的?(?:，|我)|梦见|梦到|角色扮演|我的角色|主角|台词|歌词|例句|这句话|这个句子|下面这句|这一句"
    r"|除非|就算我|即使我|哪怕我|即便我|当我.{1,20}(?:时|的时候)",
    re.IGNORECASE,
    words=False,
)
_JOKE: Final = mixed(
    r"\b(?:just kidding|kidding|jk|joking|as a joke|just joking|april fools?|sarcasm|/s)\b|(?<!不是)(?<!没)开(?:个)?玩笑|(?<!没)骗你的|逗你(?:玩|的)|说着玩|玩笑话|(?<!不)说笑",
    re.IGNORECASE,
    words=False,
)


def unquoted(text: str) -> str:
    """`text` without quotations that speak in the first person: who spoke there is unknown."""
    return _QUOTATION.sub(lambda m: "…" if FIRST_PERSON.search(m.group()) else m.group(), text)


def framed(paragraph: Sequence[str], carried: bool = False) -> tuple[list[bool], bool]:
    """For each sentence of a paragraph whether it claims nothing, and whether the next one is
    material too.

    `carried`: the paragraph before ended in a request that announces this one.
    """
    out: list[bool] = []
    material = carried
    for number, said in enumerate(paragraph):
        sentence = folded(said)
        task = bool(_TASK.search(sentence))
        joke = bool(_JOKE.search(sentence))
        order = bool(_ORDER.search(sentence))
        out.append(material or task or joke or order or bool(_PLAYED.search(sentence)))
        if joke and number:
            out[number - 1] = True
        if task and _POINTS_BACK.search(sentence):
            out[:number] = [True] * number
        announced = order and sentence.rstrip().endswith((":", "："))
        material = material or task or announced
    return out, bool(paragraph) and material and paragraph[-1].rstrip().endswith((":", "："))


# What may stand between the beginning of a clause and its first person.
_OPENERS_EN: Final = re.compile(
    r"^(?:(?:hi|hello|hey|ok(?:ay)?|oh|well|so|and|but|also|actually|honestly|frankly|personally|btw|by the way|fyi|yes|yeah|yep|no|nope"
    r"|sure|thanks|thank you|as you know|as i said|just so you know|for the record|to be honest|tbh|in fact|please|remember|note|that"
    r"|keep in mind|you should know|i should mention|now|currently|today|lately|recently|nowadays|these days|yesterday|because|since|then|still"
    r"|though|from now on|in (?:the )?future|always|first|second|anyway|hmm+|um+|ah|lol|haha|me|myself|about me|after all|of course|basically"
    r"|unfortunately|luckily|fortunately|sadly|finally|meanwhile|however|besides|sometimes|usually|generally|mostly|normally|once|there|everyone"
    r"|all|my friend|sorry|turns out|good news|great news|update|correction|(?:last|this) (?:week|month|year|spring|summer|autumn|fall|winter)"
    r"|(?:\d+|a|one|two|three|four|five|six|few) \w+ ago)(?:[\s,:.!;—–-]+|$))*"
    r"(?:(?:in|on|at|after|before|for|during|until|as of|as|back|since|outside|besides|apart from|other than|when it comes to|with|over)(?: (?!i\b|me\b|my\b|he\b|she\b|they\b|if\b)[\w'’&.+#-]+){1,5}[\s,:]+)?"
    r"(?:i )?$",
    re.IGNORECASE,
)
_GOVERNING_EN: Final = mixed(
    r"(?:\b(?:thinks?|thought|says|believes?|believed|claims?|claimed|assumes?|assumed|doubt|doubts|guess(?:es|ed)?|heard|writes|unsure|wonder"
    r"|wondering|hopes?|wish(?:es)?|suggests?|feels? like|seems?|if|whether|unless|where|what|who|which|how|why|when|not)"
    r"|(?<!\bi )\b(?:said|wrote|told \w+)|(?:\bnot|n['’]t) (?:sure|certain))(?: that)?[\s,:：]*$",
    re.IGNORECASE,
    words=False,
)
_FOREIGN_ZH: Final = re.compile(
    r"[我他她它你您谁]|别人|人家|大家|有人|人们|说|觉得|认为|以为|感觉|怀疑|确定|希望|假|除非|就算|即使|哪怕|不|没|别|未必|难道|好像|似乎|仿佛|当$|据"
)
_GOVERNING_ZH: Final = re.compile(
    r"(?:说|觉得|认为|以为|猜|怀疑|不确定|希望|声称|据说|听说|难道|好像|似乎|仿佛|是否|告诉\S{1,4}|当|不是|并非|要是|如果)(?:过|了)?[\s，,:：]*$"
)
# Before a colon these do not name another speaker.
_LABEL_ZH: Final = re.compile(
    r"^(?:请)?(?:自我介绍|介绍一下|补充|更正|纠正|另外|记住|记一下|记下|备注|注意|提醒|说明|声明|回答|答|对了|本人|背景|情况)"
)
_GREETING: Final = re.compile(
    r"^(?:hi|hello|hey|good (?:morning|afternoon|evening)|greetings|大家好|你好|您好|各位好|嗨|哈喽|早上好|下午好|晚上好)"
    r"(?: there| everyone| all| folks)?[\s,，.。!！~～]*$",
    re.IGNORECASE,
)
# After another clause these make its speaker's words of what follows.
_HANDS_ON: Final = mixed(
    r"(?:\b(?:he|she|they|you|people|everyone|nobody|my \w+) (?:\w+ )?(?:thinks?|says?|said|believes?|claims?|told me|assumes?)(?: that)?"
    r"|(?:他|她|他们|她们|你|大家|别人|人家|有人|朋友|同事)\S{0,4}?(?:说|觉得|认为|以为|声称|猜|表示))[\s:：]*$",
    re.IGNORECASE,
    words=False,
)
_DEICTIC: Final = mixed(
    r"^(?:(?:it|this|that|these|those|them|him|her|you|me|us|one|here|there|everything|something|nothing|anything|somewhere|what\w*|when\w*|where\w*"
    r"|how|why|who\w*|if|whether|myself|(?:to )?(?:say|admit|break it|see you|do (?:so|that|this)))(?:\b|$)"
    r"|这(?:个|些|里|边|种|样|儿|次|么|家|首|部|件|本)|那(?:个|些|里|边|种|样|儿|次|么|家|首|部|件|本)|哪|什么|怎么|谁|[它他她你您](?:$|的|们)|上[他她你]|自己)",
    re.IGNORECASE,
    words=False,
)


def is_greeting(text: str) -> bool:
    """Whether `text` only greets: an introduction may follow."""
    return bool(_GREETING.match(folded(text)))


def hands_on(clause: str) -> bool:
    """Whether a clause makes the next one somebody else's word ("he says, ...")."""
    return bool(_HANDS_ON.search(folded(clause)))


def is_own(lead: str, language: str) -> bool:
    """Whether a statement after `lead`, its clause's beginning, is the speaker's own claim."""
    lead = folded(lead.strip())
    if not lead:
        return True
    if language == "zh":
        if lead[-1] in ":：" and not _LABEL_ZH.match(lead):
            return False
        return len(lead) <= 16 and not _FOREIGN_ZH.search(lead)
    return len(lead) <= 80 and bool(_OPENERS_EN.match(lead + " "))


def is_governed(before: str) -> bool:
    """Whether words that end in `before` make what follows a thought, a saying or a question."""
    tail = folded(before[-60:])
    return bool(_GOVERNING_EN.search(tail) or _GOVERNING_ZH.search(tail))


def is_deictic(value: str) -> bool:
    """Whether a value only points ("it", "这个"): kept, it would mean nothing later."""
    return bool(_DEICTIC.match(folded(value)))
