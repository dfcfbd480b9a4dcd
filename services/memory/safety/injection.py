# ruff: noqa: E501 - tables read better with one entry a line
"""Instruction-like text that must never become memory to follow, in both languages and disguises.

A rule needs an act against the system (ignore, override, reveal) AND its object (instructions, safety
rules, the system prompt, a secret with a destination): "ignore the noise in the data" has only the
act. Disguises are undone before the rules look: full-width forms, zero-width and combining
characters, look-alike letters, letters spaced out, base64 and percent encoding, reversed text.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from typing import Final
from urllib.parse import unquote

from services.common.unicode import mixed
from services.memory.script import folded

_HOMOGLYPHS: Final = str.maketrans(
    "аеорсухіјѕԁӏһкмтвнαεορτυνικΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТУХІ",
    "aeopcyxijsdlhkmtbnaeoptuviKABEZHIKMNOPTYXABEKMHOPCTYXI",
)
# One character that unfolds to a sentence would make a short text long.
_LIGATURES: Final = dict.fromkeys([0xFDFA, 0xFDFB], " ")
_LEET: Final = str.maketrans("013457@$", "oieastas")

_EN_ACT: Final = r"(?:ignor\w*|disregard\w*|overlook|neglect|pay no attention to|never mind|set aside|throw out|forget|overrid\w*|bypass\w*|circumvent\w*|discard|drop|violate|break|disobey|do not (?:follow|obey)|don'?t (?:follow|obey)|stop (?:following|obeying)|disable|turn off|skip)"
_EN_OWN: Final = r"(?:your|the system|system|previous|prior|above|earlier|preceding|foregoing|original|initial|safety|security|content|hidden|built-?in|developer'?s?)"
# "all rules of grammar", "all ESLint rules" are somebody's rules; "all rules" alone are the system's.
_EN_ACT_PLAIN: Final = r"(?:ignor\w*|disregard\w*|overlook|forget|overrid\w*|bypass\w*|circumvent\w*|violate|disobey|do not (?:follow|obey)|don'?t (?:follow|obey)|stop (?:following|obeying))"
_EN_EVERY: Final = r"(?:all|any|every|existing|these|those)"
_EN_OBJECT: Final = r"(?:instruction\w*|directions|commands|rules?|prompts?|guideline\w*|guardrail\w*|polic(?:y|ies)|restriction\w*|constraint\w*|directive\w*|safeguard\w*|safety (?:measures|checks?|filters?)|programming|content filters?|moderation)"
_EN_SECRET: Final = r"(?:api[ _-]?keys?|passwords?|credentials?|secrets?|access tokens?|auth tokens?|private keys?|system prompts?|hidden prompts?|initial instructions|env(?:ironment)? variables)"
_EN_SEND: Final = r"(?:send|post|upload|forward|email|mail|leak|exfiltrate|transmit|submit|reveal|print|show|output|repeat|disclose|dump|tell me|give me|share|append)"
_ZH_ACT: Final = r"(?:忽略|无视|忘记|忘掉|忘了|抛弃|抛开|绕过|绕开|违反|违背|(?:不(?:要|必|用|需要?)?|别|无需|停止)再?(?:遵守|遵循|理会|服从|管))"
_ZH_LIFT: Final = r"(?:跳过|解除|取消|关闭|推翻|覆盖|丢弃|删掉|清除|停用|突破|摆脱)"
_ZH_YOURS: Final = r"(?:你的?|你们的?|系统|开发者|安全|隐藏|预设|内置|道德|伦理)"
_ZH_OWN: Final = r"(?:所有|全部|一切|任何|之前|以前|先前|此前|上面|以上|上述|前面|前述|原有|原来|现有|你的|系统|开发者|安全|内容|隐藏|那些|这些|预设|内置)"
_ZH_OBJECT: Final = r"(?:指令|道德准则|伦理准则|道德限制|指示|规则|规定|提示词|提示语|提示(?![音框灯])|系统提示|设定|限制|约束|准则|政策|策略|命令|审查|过滤|防护|护栏|安全机制|安全检查|安全协议)"
_ZH_SECRET: Final = r"(?:api ?key|api ?密钥|密钥|密码|口令|令牌|凭证|凭据|token|系统提示词?|系统指令|初始指令|隐藏指令|环境变量(?!的命令|怎么|的方法|是什么))"
_ZH_SEND: Final = r"(?:发送|发给|发到|发往|上传|转发|泄露|透露|告诉我|输出|打印|显示|展示|提交|寄到|交出|复述|贴出|公开)"

_PATTERNS: Final = tuple(
    mixed(p, re.IGNORECASE | re.DOTALL)
    for p in (
        # Ignore + whose + instructions.
        rf"\b{_EN_ACT}\b[^.!?\n]{{0,30}}?\b{_EN_OWN}\b[^.!?\n]{{0,40}}?\b{_EN_OBJECT}\b",
        rf"\b{_EN_ACT_PLAIN}\b[^.!?\n]{{0,20}}?\b{_EN_EVERY}(?: of)?(?: the| these| those| existing)? {_EN_OBJECT}\b(?!\s+(?:of|on|in|for|from|at|about)\b)",
        rf"(?<!怎么)(?<!如何)(?<!怎样)(?<!能否){_ZH_LIFT}掉?(?:(?:之?前|以前|先前|此前|原有|原来|现有|既有|过去)的?)?(?:所有|一切|全部|任何)的?(?:(?:安全|道德|伦理|内容|审查|系统|既有|现有)的?)?(?:限制|约束|规则|规定|准则|指令|设定|防护|护栏|审查|过滤|审核|安全检查|检查机制)(?=$|[，。！？,.!?\n]|并|然后|直接|立刻|立即|马上|只)",
        r"\b(?:bypass|circumvent|disable|turn off|evade)\w*\s+(?:the\s+)?(?:content|safety|security|moderation|ethics?)\s+(?:filters?|checks?|rules?|guardrails?|protocols?|measures?)\b",
        rf"\b{_EN_ACT}\s+(?:everything|anything|all|what)\b[^.!?\n]{{0,20}}\b(?:above|before|previously|you were told|you have been told|i said before|prior)\b",
        rf"{_ZH_ACT}[^。！？\n]{{0,8}}?{_ZH_OWN}[^。！？\n]{{0,10}}?{_ZH_OBJECT}",
        rf"{_ZH_LIFT}[^。！？\n]{{0,4}}?{_ZH_YOURS}[^。！？\n]{{0,10}}?(?:指令|道德准则|道德限制|规则|限制|约束|准则|审查|过滤|防护|护栏|安全机制|安全检查|安全协议|提示词)",
        rf"(?:把|将){_ZH_OWN}[^。！？\n]{{0,8}}?{_ZH_OBJECT}[^。！？\n]{{0,6}}?(?:都|全)?{_ZH_ACT}",
        rf"(?:从现在开始|从现在起|今后|以后)[^。！？\n]{{0,6}}?{_ZH_ACT}[^。！？\n]{{0,8}}?(?:准则|道德|伦理|规则|限制|安全)",
        rf"{_ZH_OWN}[^。！？\n]{{0,4}}?{_ZH_OBJECT}[^。！？\n]{{0,4}}?(?:作废|失效|无效|不再有效|不再适用|都不算|不用遵守)",
        rf"\b(?:all|any|your|previous|prior|safety)\b[^.!?\n]{{0,20}}\b{_EN_OBJECT}\b[^.!?\n]{{0,20}}\b(?:no longer apply|do(?:es)? not apply|are (?:now )?(?:void|null|cancelled|suspended|lifted))\b",
        # Secrets with an act of handing them over.
        rf"\b{_EN_SEND}\b[^.!?\n]{{0,30}}?\b(?:the|your|all|any|user'?s?|our)\b[^.!?\n]{{0,20}}?\b{_EN_SECRET}\b(?=[^.\n]{{0,60}}(?:https?://|\bto (?:me|this|the following)\b|@)|[^.\n]{{0,10}}\b(?:verbatim|word for word)\b)",
        r"\b(?:reveal|print|show|output|repeat|disclose|dump|leak|tell me|give me)\b[^.!?\n]{0,20}?\b(?:your|the|full|entire|hidden)\b[^.!?\n]{0,20}?\b(?:system prompt|hidden prompt|initial instructions|hidden instructions|developer message)",
        rf"\b{_EN_SEND}\b[^.!?\n]{{0,40}}?\b(?:conversation|chat history|memor(?:y|ies)|user data|contacts|messages)\b[^.\n]{{0,30}}\bto\b[^.\n]{{0,15}}(?:https?://|\S{{1,80}}@\S)",
        rf"{_ZH_SEND}[^。！？\n]{{0,8}}?(?:你的|你们的|全部|所有|完整的?|用户的?|系统的?)[^。！？\n]{{0,8}}?{_ZH_SECRET}",
        rf"(?:把|将)[^。！？\n]{{0,12}}?(?:{_ZH_SECRET}|对话记录|聊天记录|用户数据|用户信息|记忆)[^。！？\n]{{0,8}}?(?:发送|发给|发到|发往|上传|转发|泄露|提交|寄到|告诉|输出|打印)[^。！？\n]{{0,16}}?(?:https?://|http|\S{{1,64}}@|我(?!的?(?:同事|老婆|老公|朋友|妈|爸|老板|客户|同学|室友|家人|女|男|儿|弟|妹|哥|姐))|外部|第三方|这个地址|服务器)",
        rf"https?://[^\s\u4e00-\u9fff]{{1,200}}+[^。！？\n]{{0,20}}?{_ZH_SEND}[^。！？\n]{{0,10}}{_ZH_SECRET}",
        r"\b(?:what(?:['’]s| is| are)|tell me) your (?:full |exact |hidden )?(?:system prompt|initial instructions|hidden (?:prompt|instructions))",
        r"\b(?:repeat|print|output|show)\b[^.\n]{0,20}\b(?:words|text|everything|content)\b[^.\n]{0,10}\babove\b[^.\n]{0,20}\b(?:starting with|beginning with|verbatim)",
        r"\b(?:whenever|every time|each time|if) (?:the |a |any )?(?:users?|someone|anyone|they|people) (?:asks?|mentions?|wants?|needs?)\b[^\n]{0,100}\b(?:recommend|send|redirect|refer|promote|link|point|tell)\b[^\n]{0,60}https?://",
        # The plainest form in other languages.
        r"\b(?:ignore[zrs]?|oublie[zrs]?)\s+(?:toutes?\s+)?(?:les|vos|tes)\s+(?:instructions|consignes|règles)",
        r"\b(?:ignor[ae]r?|olvid[ae])\s+(?:todas?\s+)?(?:las|as|tus|sus|suas?)\s+(?:instrucciones|instruções|reglas|regras)",
        r"\b(?:ignorier\w*|missachte\w*|vergiss)\s+(?:bitte\s+)?(?:alle[nrs]?\s+)?(?:(?:bisherigen|vorherigen|vorigen|obigen|deine|ihre|die)\s+)*(?:anweisungen|regeln|instruktionen|vorgaben)",
        r"(?:指示|命令|ルール|规则|プロンプト)[をはも]?[^。\n]{0,6}(?:无视|忘れ)(?:し|て|せよ)",
        r"(?:지시|명령|규칙|지침)[^.\n]{0,8}(?:무시|잊)",
        # New identity without limits.
        r"\b(?:you are now|from now on,? you(?: are|'re)|act as|pretend (?:to be|you are|you're|you have|that you)|behave as|roleplay as|become)\b[^.!?\n]{0,40}\b(?:dan\b|do anything now|unrestricted|unfiltered|uncensored|jailbroken|no (?:restrictions?|rules?|limits?|filters?)|without (?:any )?(?:(?:ethical|moral|safety|content) )?(?:restrictions?|rules?|limits?|filters?|ethics)|evil|developer mode|god mode|admin(?:istrator)? mode|root mode)",
        r"(?<!how to )(?<!how do i )(?<!how can i )\b(?:enable|enter|activate|switch to|turn on)\b[^.!?\n]{0,12}\b(?:developer|dan|god|jailbreak|debug override|unrestricted|sudo)\s+mode\b(?!\s+(?:on|in|for)\b)",
        r"(?:你现在是|从现在开始?,?，?你(?:就)?是|从现在起,?，?你(?:就)?是|扮演|假装(?:你)?是?|假设你是?|(?<!怎么)(?<!如何)(?<!怎样)(?:进入|开启|启用|切换到|激活))[^。！？\n]{0,16}?(?:没有(?:任何)?(?:限制|规则|约束|道德)(?![预时次数额])|不受(?:任何)?(?:限制|约束|规则)|无限制|无审查|不受审查|越狱|开发者模式(?!怎么|在哪|的方法)|上帝模式|dan ?模式|管理员模式|超级管理员|邪恶)",
        r"\bfrom now on\b[^.!?\n]{0,40}\b(?:obey|comply with|execute|follow)\b[^.!?\n]{0,20}\b(?:every|all|any|only)\b[^.!?\n]{0,20}\b(?:command|order|instruction|request)s?\b[^.!?\n]{0,40}\b(?:without|regardless|no matter|question)",
        r"(?:从现在(?:开始|起)|以后|今后)[^。！？\n]{0,10}?(?:无条件|绝对|必须)(?:服从|执行|听从|遵从|照做)",
        r"\b(?:do not|don'?t|never)\s+(?:tell|inform|warn|alert|mention (?:this|it) to)\s+(?:the )?(?:user|anyone|your developers?|admins?)\b[^.!?\n]{0,60}\b(?:and|but|then|while|instead)\b",
        r"(?:不要|别|不许|不得)(?:告诉|告知|提醒|通知|让)[^。！？\n]{0,6}?(?:用户|管理员|开发者|任何人)[^。！？\n]{0,12}?(?:并|然后|同时|直接|悄悄|知道)",
        # Forged structure of a prompt.
        r"<\|?(?:im_start|im_end|system|endoftext|start_header_id)\|?>|\[/?INST\]|<<SYS>>|<\/?(?:system|developer)(?:[ -](?:prompt|message))?>",
        r"(?:^|\n)[^\S\n]*(?:#{1,6}\s*|\*{2}|\[)?(?:new |updated |override )?(?:system|developer)(?: prompt| message| instructions?| override| update)?(?:\]?\*{0,2}[^\S\n]*[:：]|\])\s*(?=\S).{0,120}?\b(?:you (?:must|are|will|should|may)|ignore|obey|always|never|from now)",
        r"(?:^|\n|[。！？；])[^\S\n]*(?:#{1,6}\s*|【|\[)?(?:新的?|更新后?的?|最新)?(?:系统|开发者)(?:提示词?|指令|消息|通知|更新|命令)(?:】|\])?\s*[:：].{0,60}?(?:你必须|你现在|你将|必须|忽略|永远|从现在|始终|不得)",
        r"\b(?:override|disable|remove|lift|turn off|deactivate)\b[^.!?\n]{0,12}\b(?:your|all|the)\b[^.!?\n]{0,12}\b(?:safety|security|content|ethical|moral)\b[^.!?\n]{0,15}\b(?:filters?|rules?|protocols?|settings?|guidelines?|checks?|limits?|restrictions?)\b",
        r"(?:关闭|禁用|解除|停用|去掉|移除|取消)[^。！？\n]{0,6}?(?:你的?|所有|全部)[^。！？\n]{0,6}?(?:(?:安全|道德|伦理|审查)(?:过滤|限制|规则|检查|机制|审核|设置)?|内容(?:过滤|限制|审核|审查))",
        r"\b(?:add|save|store|write|put|remember|memori[sz]e)\b[^.!?\n]{0,30}\b(?:to|in|into|as)\b[^.!?\n]{0,12}\b(?:your )?(?:long[- ]term )?memory\b[^.!?\n]{0,60}\b(?:always|never|must|ignore|whenever|every time)\b[^.!?\n]{0,60}(?:https?://|recommend|send|visit|click|transfer|run)",
        r"(?:记住|写入(?:你的)?记忆|存入(?:你的)?记忆|保存到(?:你的)?记忆)[^。！？\n]{0,12}?(?:以后|今后|每次|永远|始终|从现在)[^。！？\n]{0,24}?(?:都(?:要|必须|得)|必须)[^。！？\n]{0,16}?(?:https?://|转账|汇款|点击|访问|执行|运行|下载)",
        r"\b(?:run|execute|eval)\b[^.!?\n]{0,20}(?:\brm -rf\b|\bcurl\b[^\n]{0,60}\|\s*(?:ba)?sh|\bsudo\b|\bdrop table\b)[^\n]{0,80}\b(?:without|silently|whenever|always|every)",
        r"(?:解除|摆脱|不受)[^。！？\n]{0,6}?(?:安全|伦理|道德|审查)[^。！？\n]{0,4}?(?:限制|约束|规则|束缚)",
    )
)
# Compared with all spaces and separators gone, which undoes "i g n o r e" and "忽·略".
_SQUEEZED: Final = tuple(
    mixed(p)
    for p in (
        r"(?:ignore|disregard|forget|override|bypass)(?:(?:all|any|the|my|of){0,3}(?:your|previous|prior|above|earlier|safety|system|preceding)(?:all|the|previous|prior|above|earlier|safety|system){0,2}|(?:all|any)(?:the)?(?=instructions|prompts))(?:instructions?|directions|rules?|prompts?|guidelines?|policies|restrictions?)",
        r"(?:youarenow|fromnowonyouarean?)(?:unrestricted|unfiltered|dan\b|withoutanyrules|uncensored)",
        r"(?:从现在开始|从现在起|你现在)(?:你|就)?是?(?:一个)?(?:没有任何限制|不受任何(?:限制|约束)|无限制)",
        rf"{_ZH_ACT}(?:掉|了|你|的|所有|全部|一切|任何|之前|以前|先前|上面|以上|前面|系统|安全|内容){{1,6}}{_ZH_OBJECT}",
        r"(?:reveal|print|show|repeat|send)(?:me)?(?:the|your|full|hidden){1,3}systemprompt",
    )
)
_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/_-]{16,}={0,2}(?![A-Za-z0-9+/=_-])")
_HEX: Final = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{2}){16,}(?![0-9A-Za-z])")
_BASE32: Final = re.compile(r"(?<![A-Za-z0-9=])[A-Z2-7]{24,}={0,6}(?![A-Za-z0-9=])")
_ESCAPED: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
# Beyond ASCII, Han and their punctuation there may be look-alikes and characters nobody sees.
_UNUSUAL: Final = re.compile(
    r"[^\n\t\x20-\x7e\u4e00-\u9fff\u3000-\u3029\u3030-\u303f\u2010-\u2027\u00b7]"
)
# At least one of these is in whatever a pattern above matches, once spaces and separators are gone:
# most texts hold none and are let through by one look instead of sixty. A test holds both to the same
# answer.
_NEEDED: Final = re.compile(
    r"instruc|direction|command|rule|prompt|guideline|guardrail|polic|restrict|constraint|directive|safeguard|safety|security"
    r"|programming|filter|moderation|check|protocol|measure|above|before|previous|prior|youweretold|youhavebeentold"
    r"|apikey|password|credential|secret|token|privatekey|variable|conversation|chathistory|memor|userdata|contacts|messages|message"
    r"|dan|doanything|unfiltered|uncensored|jailbr|limit|ethic|moral|evil|godmode|sudomode|overridemode|adminmode|administratormode|rootmode|settings"
    r"|fromnowon|system|developer|http|imstart|imend|endoftext"
    r"|startheader|inst|sys|rmrf|curl|sudo|droptable"
    r"|oublie|consignes|règles|regles|instrucc|reglas|instruç|regras|anweisung|regeln|vorgaben|无视|忘れ|무시|잊"
    r"|限制|约束|规|准则|指令|设定|防护|护栏|审查|过滤|审核|检查|机制|指示|提示|政策|策略|命令|安全|道德|伦理"
    r"|api|密钥|密码|口令|令牌|凭证|凭据|系统|变量|记忆|记住|越狱|开发者|上帝模式|管理员|邪恶"
    r"|发送|发给|发到|发往|上传|转发|泄露|提交|寄到|输出|打印|服从|听从|遵从|照做|执行"
)
# The same of acts that are everyday words: only with whom they are for.
_NEEDED_TOO: Final = (
    re.compile(r"(?:tell|inform|warn|alert|mention).{0,16}?(?:user|anyone|admin)"),
    re.compile(r"(?:告诉|告知|提醒|通知|让).{0,6}?(?:用户|任何人)|告诉.{0,16}?我"),
)
_LEET_MARK: Final = re.compile(r"[0-9@$]")
_ROT13: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")
# Five letters or characters in a row that each stand alone.
_SPACED_OUT: Final = re.compile(r"(?<!\w)\w(?:[^\w\n]{1,3}\w(?!\w)){4,}")
_TAGS: Final = re.compile("[\U000e0020-\U000e007e]")
_MAX_CHARACTERS: Final = 40_000


def _visible(text: str) -> str:
    """NFKC with format, combining and control characters out, look-alikes and traditional ones
    folded."""
    plain = unicodedata.normalize("NFKC", text.translate(_LIGATURES))
    if _UNUSUAL.search(plain) is None:
        return folded(plain)
    kept = "".join(
        c for c in plain if c in "\n\t" or unicodedata.category(c) not in {"Cf", "Mn", "Cc", "Co"}
    )
    return folded(kept.translate(_HOMOGLYPHS))


def _decoded(text: str) -> list[str]:
    """What base64, hex and percent runs of the text say, where that is readable text."""
    out: list[str] = []
    for match in _BASE64.finditer(text):
        run = match.group().rstrip("=").replace("-", "+").replace("_", "/")
        try:
            raw = base64.b64decode(run + "=" * (-len(run) % 4), validate=True)
            out.append(raw.decode("utf-8"))
        except (binascii.Error, UnicodeDecodeError):
            continue
    for match in _HEX.finditer(text):
        try:
            out.append(bytes.fromhex(match.group()).decode("utf-8"))
        except UnicodeDecodeError:
            continue
    for match in _BASE32.finditer(text):
        run = match.group().rstrip("=")
        try:
            out.append(base64.b32decode(run + "=" * (-len(run) % 8)).decode("utf-8"))
        except (binascii.Error, UnicodeDecodeError):
            continue
    if "&" in text and (unescaped := html.unescape(text)) != text:
        out.append(unescaped)
    if _ESCAPED.search(text):
        out.append(_ESCAPED.sub(lambda m: chr(int(m[1] or m[2], 16)), text))
    if text.count("%") >= 3:
        unquoted = unquote(text)
        if unquoted != text:
            out.append(unquoted)
    return out


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def _may_match(squeezed: str) -> bool:
    """Whether any pattern can match; False is certain. `squeezed`: without separators."""
    if _NEEDED.search(squeezed) or any(p.search(squeezed) for p in _NEEDED_TOO):
        return True
    return bool(_LEET_MARK.search(squeezed)) and bool(_NEEDED.search(squeezed.translate(_LEET)))


def _matches(text: str, squeezed: str) -> bool:
    if not _may_match(squeezed):
        return False
    if any(p.search(text) for p in _PATTERNS):
        return True
    if any(p.search(squeezed) for p in _SQUEEZED):
        return True
    return any(p.search(squeezed.translate(_LEET)) for p in _SQUEEZED[:1])


def unfolded(text: str) -> list[str]:
    """`text` as it is read, and what is hidden in it: invisible letters, spaced-out letters,
    encoded runs."""
    text = text[:_MAX_CHARACTERS]
    seen = _visible(text)
    hidden = "".join(chr(ord(c) - 0xE0000) for c in _TAGS.findall(text))
    out = [seen, *([hidden] if hidden else []), *(_visible(plain) for plain in _decoded(seen))]
    if _SPACED_OUT.search(seen):
        out.append(_squeezed(seen))
    return out


def is_injection(text: str) -> bool:
    """Whether `text` tries to instruct the system instead of telling something about its user."""
    text = text[:_MAX_CHARACTERS]
    seen = _visible(text)
    squeezed = _squeezed(seen)
    if _matches(seen, squeezed) or _matches(seen[::-1], squeezed[::-1]):
        return True
    # Letters of the tags block (U+E0020..) are invisible and read by models all the same.
    hidden = "".join(chr(ord(c) - 0xE0000) for c in _TAGS.findall(text))
    if hidden and _matches(hidden, _squeezed(hidden)):
        return True
    rotated = squeezed.translate(_ROT13)
    if _NEEDED.search(rotated) and any(p.search(rotated) for p in _SQUEEZED):
        return True
    return any(_matches(plain, _squeezed(plain)) for plain in map(_visible, _decoded(seen)))
