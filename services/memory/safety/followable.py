# ruff: noqa: E501 - tables read better with one entry a line
"""Which stored wishes may stand in the block that is to be followed.

`is_injection` says whether a text is an attack, and has to let look-alikes pass; a list of attacks is
never complete. What is followed is decided the other way round: a wish has to name a manner of
answering (language, length, form, tone, how to be addressed, ...) and to touch nothing beyond it (the
rules of the system, obedience, secrets, addresses, commands, ...); else it is shown for reference,
attack or not. A wrong refusal costs the place of one line, a wrong admission would hand the system over.
"""

from __future__ import annotations

import re
from typing import Final

from services.common.unicode import mixed
from services.memory.safety.injection import unfolded
from services.memory.script import folded

MAX_CHARACTERS: Final = 200

_MANNER: Final = mixed(
    # Language, length, level.
    r"\b(?:english|chinese|mandarin|cantonese|french|german|spanish|japanese|korean|russian|languages?|bilingual\w*|short\w*|brief\w*|concise\w*|terse\w*|succinct\w*|compact\w*|long\w*|length|lengthy|detail\w*|thorough\w*|in[- ]depth|depth"
    r"|\d+ words?|words|sentences?|paragraphs?|lines?|explain\w*|explanations?|plain\w*|simpl\w+|jargon|technical\w*|non-technical|beginners?|experts?|eli5|vocabulary|to the point|fluff|filler|small talk"
    # Form.
    r"|bullets?|bullet ?points?|lists?|tables?|headings?|headers?|markdown|formats?|formatting|json|yaml|code|snippets?|examples?|sources?|cit(?:e|es|ing|ation|ations)|references?|links?|footnotes?|metric|imperial|units?|celsius|fahrenheit|(?:24|12)[- ]?hours?|time ?zones?|dates?"
    r"|emojis?|emoticons?|bold|italics?|line numbers?|file ?names?|latex|formulas?|equations?|diagrams?|summar\w+|conclusions?|steps?|step[- ]by[- ]step|numbered|spelling|british|american|punctuation|exclamation marks?"
    # Tone and address.
    r"|tone|formal\w*|informal\w*|casual\w*|friendly|polite\w*|humou?r\w*|jokes?|funny|playful\w*|serious\w*|encouraging\w*|warm\w*|neutral\w*|direct|directly|blunt\w*|sugar-?coat\w*|style|call me|address me|nickname|pronouns?|greetings?|apologi[sz]\w*|apolog(?:y|ies)|compliments?|small-talk)\b"
    r"|[中英日韩法德俄汉]文|[中英日韩法德俄汉]语|普通话|粤语|繁体|简体|双语|语言|简短|简洁|精简|精炼|扼要|简明|简单|短一?些|短一?点|长一?些|长一?点|长短|长度|详细|具体|展开|深入|细致|篇幅|字数|[\d一二三四五六七八九十百两]\s*(?:个?字|句|行|段|条|点)|句话|以内"
    r"|分点|要点|列表|列出|清单|表格|标题|段落|分段|格式|排版|编号|代码|示例|例子|举例|比喻|类比|来源|出处|链接|引用|参考文献|脚注|单位|公制|英制|摄氏|华氏|小时制|时制|时区|日期|表情|颜文字|加粗|斜体|行号|文件名|公式|图表|图示|标点|感叹号"
    r"|语气|口吻|口气|风格|文风|正式|轻松|活泼|幽默|玩笑|严肃|礼貌|客气|客套|敬语|寒暄|道歉|鼓励|委婉|直白|直接|称呼|叫我|喊我|管我叫|结论|先说|先给|步骤|一步步|解释|讲解|通俗|易懂|白话|大白话|术语|行话|入门|初学|小白|总结|概括|摘要|重点|废话|啰嗦|重复",
    re.IGNORECASE,
)
_TOUCHES: Final = mixed(
    r"\b(?:instruct\w*|directive\w*|rules?|polic(?:y|ies)|guidelines?|guardrails?|restrict\w*|unrestricted|constraints?|prompts?|safety|safeguards?|secur\w+"
    r"|filters?|filtering|moderat\w+|censor\w*|uncensored|unfiltered|ethic\w*|moral\w*|jailbr\w+|obey\w*|obedien\w+|comply|complies|compliance|disobey\w*|command\w*|execut\w+|without question"
    r"|ignor\w+|disregard\w*|overrid\w+|bypass\w*|circumvent\w*|overrule\w*|(?<!not )(?<!n't )(?<!n’t )(?<!never )forget|developer mode|god mode|sudo|root|shell|rm -rf|curl|api|passwords?|credentials?|secrets?|tokens?|private keys?"
    r"|forward|upload|exfiltrat\w+|leak\w*|transfer|pay(?! attention)|wire|purchase|click|visit|download|install|recommend\w*|promote\w*|advertis\w+|do anything now|hidden|secretly|silently|covertly|links? to|(?:not|n['’]t|never) (?:tell|inform|mention)|(?<!metric )system|admin\w*|pretend|role-?play|act as|no limits?|without (?:any )?limits?"
    # Consent and judgement handed over.
    r"|refus\w+|declin\w+|reject\w*|say no|no matter|regardless|illegal\w*|unlawful|criminal|danger\w*|harmful|hateful?|explosives?|weapons?|authorit\w+|permission\w*|privileg\w+|superuser|owner|master|as law|(?:always|ever) (?:agree|say yes|answer yes|confirm|approve)|agree with|confirm every|approve (?:all|every)"
    # What others said, what stands around, and where it would go.
    r"|other (?:users?|people|customers?|tenants?)|(?:chat|conversation) (?:history|log)|(?:everything|anything|text|words|messages?|content|all) (?:above|before|so far)|whole (?:conversation|context)|repeat(?:ing)? (?:everything|all|the (?:above|text|context))|verbatim|env(?:ironment)?(?: variables?)?"
    r"|(?:send|mail|email|forward|give) (?:me |him |her |them )?(?:a )?cop(?:y|ies)|e-?mail (?:a|me|him|her|them|each|every|it)|copy (?:everything|all|each|every)|b?cc|tell (?:the )?(?:users?|people|everyone|customers?)|say that|mention that|prais\w+|best (?:product|brand|choice)|buy|order from|subscrib\w*|contact|whatsapp|telegram|wechat|call (?:\d|the |a )"
    # Acts instead of words, and words nobody can read.
    r"|(?:call|use|invoke|run) (?:the |a |any |all )?\S{0,40} ?(?:tools?|functions?)|delet\w+|drop (?:all|table\w*)|wipe|erase|\brm|base ?(?:64|32)|rot ?13|hex(?:adecimal)?|encod\w+|encrypt\w*|query string|images? with|render an?)\b|!\[|<[a-z/!]|/etc/|https?:|www\.|\S@\S|\b[\w-]+\.(?:com|net|org|io|cn|ru|xyz|example|top|info|dev|app)\b"
    r"|指令|规则|规定|准则|限制|约束|政策|安全|审查|审核|过滤|护栏|防护|提示词|提示语|设定|系统(?![地性化])|服从|听从|听命|听我的|听我指|遵从|照做|照办|无条件|执行|命令(?!语气|式|行)|越狱|道德|伦理"
    r"|忽略|无视|绕过|绕开|推翻|跳过|解除|(?<!不要)(?<!别)(?<!不能)(?<!不许)(?:忘记|忘掉)|违反|违背|密码|口令|密钥|令牌|凭证|凭据|隐私|泄露|发送|发给|发到|转发|上传|转账|汇款|付款|支付|购买|点击|访问|下载|安装|推荐|宣传|广告|网址|邮箱|管理员|开发者|假装|扮演|冒充|悄悄|偷偷|暗中|(?:不要|别|不许|不得)(?:告诉|告知|让)"
    r"|拒绝|无论|無論|不管|违法|非法|犯法|危险|有害|仇恨|骂人|脏话|炸[药弹]|武器|权限|授权|超级用户|主人|同意我|都(?:说是|说对|同意|答应|批准|确认)|不用(?:核实|确认|检查)"
    r"|(?:其他|别的|其它|别)(?:用户|人|客户|租户)|(?:对话|聊天|历史)记录|(?:上文|上面|前文|之前|以上|收到)的?(?:话|文字|内容|全部|消息|原样|一字不)|全部内容|原样|原封不动|复述|环境变量|抄送|复制给|(?:让|叫|要|劝)(?:用户|人|大家|客户)|微信号?|加(?:微信|[qQ][qQ]|群|好友)|联系|拨打|(?<!\w)点\s?(?:com|cn|net|me)|[a-z]点\s?(?:com|cn|net|me|top|xyz)"
    r"|(?:调用|使用|运行)\S{0,30}\s?(?:工具|函数|接口)|删除|删掉|清空|清除|(?:用|以|成|为)\S{0,8}编码|加密|密文",
    re.IGNORECASE,
)


def may_be_followed(*texts: str, named: bool = False) -> bool:
    """Whether a wish made of these texts (value, statement) may be shown as one to follow: all of
    them touch nothing else, and one names a manner of answering, unless the attribute that it is
    the value of does so already (`named`). Pure, no attack list."""
    for text in texts:
        if len(text) > MAX_CHARACTERS:
            return False
        forms = unfolded(text)
        # More than one form: something was spelled so that eyes and rules pass over it.
        if len(forms) > 1 or _TOUCHES.search(forms[0]) or _TOUCHES.search(forms[0][::-1]):
            return False
    return named or any(_MANNER.search(folded(text)) for text in texts)
