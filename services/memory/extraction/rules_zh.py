# ruff: noqa: E501 - tables read better with one entry a line
"""Chinese statements that rules understand."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from services.memory.domain import Cardinality, FactKind
from services.memory.extraction import words
from services.memory.extraction.found import Found, Made, Rule

_Entry = tuple[str, Found | Callable[[re.Match[str]], Made]]

_V: Final = r"(?P<v>[^，。！？,;；!?\n]{1,40}?)"
_END: Final = r"(?=$|[，。！？,;；!?\n])"
_ADV: Final = r"(?:也|很|最|特别|非常|超级|超|真的|真|还是|现在|目前|如今|比较|一直|更|就|其实|从小就?|又|开始|平时|最近|挺|蛮|尤其|才|可|倒)*"
_NOW: Final = r"(?:又|还是|重新|终于|最终|现在|目前|如今|已经|刚刚?|最近|今年|上个月|去年|前年|上周|这周|昨天|从\S{1,8}起|\d{4}年(?:\d{1,2}月)?){0,8}"
_JOB: Final = (
    r"(?P<v>(?!你|您|他|她|不|没|说|想|在|被|和|跟|给|因为|为了|怕|来|去|要|问|看|找|从|对)[^，。！？,;；!?\n的]{0,14}?(?:工程师|程序员|程序猿|码农|开发者?|架构师|设计师?|分析师|会计师?|律师|医师|教师|老师|医生|护士|学生|研究生"
    r"|博士生?|硕士|作家|画家|厨师|司机|经理|主管|总监|教授|讲师|研究员|科学家|记者|编辑|翻译|顾问|店长|老板|创业者|博主|运营"
    r"|产品经理|产品|农民|木匠|电工|技师|摄影师|飞行员|消防员|警察|公务员|退休|自由职业者?|全栈|前端|后端|测试|运维|导演|演员|音乐人|咖啡师"
    r"|建筑师|药剂师|牙医|兽医|理发师|糕点师|咨询师|插画师|销售|出纳|行政|人事|客服|策划|实习生|保安|保洁|快递员|外卖员|服务员|收银员|空姐|船员"
    r"|军人|法官|检察官|主播|教练|歌手|作曲家|程序开发|裁缝|护工|导游|园丁|渔民|舞者|翻译家|经济学家|数学家|物理学家|化学家))"
)
_KIN: Final = (
    r"(?:老婆|妻子|老公|丈夫|爱人|对象|男朋友|女朋友|男友|女友|爸爸?|妈妈?|父亲|母亲|父母|爷爷|奶奶|外公|外婆|姥姥|姥爷|哥哥?|姐姐?|弟弟?|妹妹?"
    r"|儿子|女儿|孩子|娃|宝宝|同事|朋友|同学|室友|邻居|老板|上司|领导|老师|导师|客户|闺蜜|兄弟|姐妹|舅舅?|叔叔?|阿姨|姑姑?|姨妈?|房东|医生|下属|徒弟|学生|团队|偶像)"
)
# The common family names: "我是张伟" is a name, "我是高手" hardly.
_SURNAME: Final = "[王李张刘陈杨黄赵吴周徐孙朱马胡郭林何罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴夏钟汪田任姜范方石姚谭廖邹熊金陆郝孔崔康毛邱秦江史顾侯邵孟龙段雷钱汤尹黎易常武乔贺赖龚]"
_BRIEF: Final = r"(?P<v>简短|简洁|精简|精炼|简明|短一?点|短些|简单|言简意赅|一句话|别太长|不要太长|详细|详尽|具体|长一?点|深入)(?:一点|一些|点|些)?"
_ABOUT: Final = r"(?:回答|回复|答复|答案|说明|解释|输出|说话|回话|回应|讲解)"
_WHEN: Final = re.compile(
    r"^(?:大?前天|昨天|今天|上上?个?(?:周|星期|月)|这个?(?:周|星期|月)|去年|前年|今年|最近|刚刚?|已经|现在|目前|后来)+"
)
_LANG: Final = r"(?P<v>中文|英文|英语|汉语|普通话|粤语|日语|日文|法语|德语|韩语|西班牙语|俄语|文言文|简体中文|繁体中文)"


_STYLE: Final = rf"[^，。！？\n]{{0,16}}?(?:{_ABOUT}|表格|列表|要点|表情|emoji|代码|例子|举例|链接|出处|引用|来源|格式|语气|敬语|客套|寒暄|道歉)[^，。！？\n]{{0,16}}"
# Without one of these "请帮我看看这段代码" is a request for once, not a wish for good.
_STANDING: Final = (
    r"(?:以后|今后|从现在(?:起|开始)|从今以后|往后|每次|每回|总是|永远|一律|一直|务必都?|都要?)"
)
# A wish that only points to something that is not in it ("the way I like") says nothing later.
_POINTS_AWAY: Final = re.compile(
    r"我喜欢|我想要|我习惯|我需要|合适|适当|(?:像|按照?|跟|和|同)?(?:以前|之前|上次|上回|刚才|刚刚|上面|前面|平时|往常|老样子)|这样|那样|这种|那种|这个|那个|这段|那段|下面|以下|如下"
)


# What may stand before a wish about answers.
_ASKING: Final = re.compile(
    r"^(?:以后|今后|从现在(?:起|开始)|从今以后|请|请你|麻烦你?|希望你?|我希望你?|我想让你|我想要你?|我想|我要|我更?喜欢|我喜欢你?|我偏好|我习惯|我要求你?|你|您|可以|能不能|能|可不可以|尽量|一律"
    r"|每次|都|总是|平时|一般|给我|跟我|和我|对我|另外|还有|对了|顺便|记住|记得|请记住|嗯|好的?|那|最好|务必|必须|要|应该|就|用|的|时候?|回答|回复|[\s，,：:])*$"
)
_ADDRESSED: Final = re.compile(
    r"^(?:以后|今后|从现在(?:起|开始)|请|请你|你|您|你们|可以|就|都|大家|他们|她们|朋友们?|同事们?|同学们?|家人|家里人|人家|一般|平时|通常|另外|对了|那|也|习惯|喜欢|[\s，,：:])*$"
)
_NOT_A_PLACE: Final = re.compile(
    r"^(?:这|那|哪|家$|家里|公司$|单位$|努力|认真|拼命|加班|远程|好好|专心|安心|兼职|全职|外面|外地|线上|一起|辛苦|踏实|疯狂|忙着|专注|继续|白天|晚上|夜里|周末|同一|一[家个所]|某|(?:地铁|高铁|火车|飞机|车|路|床)上|咖啡[馆厅店]$|[你您他她它])"
)

# Where one stays for a night, or what only those know who are there.
_NO_CITY: Final = re.compile(
    r"(?:酒店|宾馆|旅馆|民宿|宿舍|学校|医院|公司|单位|隔壁|附近|对面|旁边|郊区|市区|城里|农村|乡下|老家|新家|新房子?|出租屋|楼|层|楼[上下])$"
)
_FOR_SO_LONG: Final = re.compile(
    r"(?:已经|快要?|有|大概|差不多|将近|住)*(?:[\d一二三四五六七八九十几两半多好]+个?(?:年|月|天|周|星期|礼拜)[多半]?|很久|好久)(?:多|半)?了?$"
)


def subject_of(clause: str) -> bool | None:
    """Whose clause it is: the speaker's, somebody else's, or None where no subject is seen."""
    if re.match(rf"(?:.{{0,8}}?)我(?:的|家)?{_KIN}", clause):
        return False
    if re.match(r".{0,8}?(?:我|本人|咱)", clause):
        return True
    return False if re.match(r".{0,4}?(?:他|她|它|你|您|这|那|人家)", clause) else None


def _job_or_city(match: re.Match[str]) -> Made:
    place = match["v"].strip()
    if _NOT_A_PLACE.match(place):
        return None
    if place in words.CITIES_ZH or place in words.PROVINCES_ZH or place.endswith(("市", "省")):
        return Found("work_city", place, cardinality=Cardinality.ONE)
    return Found("employer", place)


def _own_thing(match: re.Match[str]) -> Made:
    thing, value = match["k"].strip(), match["v"].strip()
    if thing in words.NOT_A_THING_ZH:
        return None
    # Of other people a name is kept, nothing else.
    if re.search(_KIN + "$", thing) and not match["verb"].endswith("叫"):
        return None
    if value.endswith("的") or value.startswith(
        (
            "什么",
            "怎么",
            "不",
            "说",
            "想",
            "要",
            "在",
            "很",
            "太",
            "被",
            "把",
            "因为",
            "真",
            "非常",
            "好",
        )
    ):
        return None
    return Found(thing, cardinality=Cardinality.ONE)


def _city(match: re.Match[str]) -> Made:
    place = _FOR_SO_LONG.sub("", match["v"].strip())
    if (
        _NOT_A_PLACE.match(place)
        or _NO_CITY.search(place)
        or place.endswith(("时候", "时", "的话"))
    ):
        return None
    return Found("city", place, cardinality=Cardinality.ONE)


def _school(match: re.Match[str]) -> Made:
    general = re.fullmatch(
        r"(?:学校|大学|中学|小学|初中|高中|学院|书院|医院|法院|.*上学|.*同学|.*在学)", match["v"]
    )
    return None if general else Found("school", cardinality=Cardinality.ONE)


def _birthday(match: re.Match[str]) -> Made:
    dated = re.search(r"[\d一二三四五六七八九十正腊]", match["v"])
    return Found("birthday", cardinality=Cardinality.ONE) if dated else None


def _known_city(match: re.Match[str]) -> Made:
    place = match["v"].strip()
    known = (
        place in words.CITIES_ZH
        or place in words.PROVINCES_ZH
        or place.endswith(("市", "省", "县"))
    )
    return Found("city", cardinality=Cardinality.ONE) if known else None


def _system(match: re.Match[str]) -> Made:
    subject = re.sub(r"(?<=.)[从由].*$", "", _WHEN.sub("", match["k"].strip()))
    if not 2 <= len(subject) <= 16 or subject in {"这个", "那个", "他们", "我们", "你们"}:
        return None
    return Found(f"{subject}_runs_on", cardinality=Cardinality.ONE)


@lru_cache(maxsize=1)
def rules() -> Sequence[Rule]:
    """Patterns in order; the first that matches a clause is taken."""
    return (
        *(Rule(re.compile(p, re.IGNORECASE), make, lead=_ASKING) for p, make in _asked()),
        *(Rule(re.compile(p, re.IGNORECASE), make, lead=_ADDRESSED) for p, make in _addressed()),
        *(Rule(re.compile(p, re.IGNORECASE), make, greeted=True) for p, make in _greeting()),
        *(Rule(re.compile(p, re.IGNORECASE), make) for p, make in (*_person(), *_doings())),
        *(Rule(re.compile(p, re.IGNORECASE), make, subjectless=True) for p, make in _subjectless()),
        *(Rule(re.compile(p, re.IGNORECASE), make, continues=True) for p, make in _continuing()),
    )


def _asked() -> Sequence[_Entry]:
    """How to answer."""
    one, pref = Cardinality.ONE, FactKind.PREFERENCE
    return [
        (rf"(?:用|使用|以|说|讲){_LANG}(?:来|跟我|给我|和我)?(?:{_ABOUT}|交流|沟通|说|写|聊)", Found("answer_language", kind=pref, cardinality=one)),
        (rf"{_ABOUT}(?:请|都|要|时|的时候|尽量|一律|最好|全部|统一)*(?:用|使用){_LANG}", Found("answer_language", kind=pref, cardinality=one)),
        (rf"{_ABOUT}(?:我|问题)?(?:的时候|时)?(?:请|都|要|尽量|最好|希望|可以|能|就|得|必须|务必)*(?:保持|写得?|得|说得?)?{_BRIEF}", Found("answer_length", kind=pref, cardinality=one)),
        (rf"(?:请|麻烦|希望你?|以后|今后|尽量|要|想要|喜欢|偏好|更喜欢|用|以){_BRIEF}(?:地|的|直接的?)?(?:话|语言|句子|文字|方式)?(?:来|跟我|给我)?(?:{_ABOUT})", Found("answer_length", kind=pref, cardinality=one)),
        (rf"{_ABOUT}(?:请|都|要|尽量|最好|希望|可以)*(?P<v>直接|正式|口语化|幽默|温柔|严肃|专业|通俗|委婉|客气)(?:一点|一些|点|些)?", Found("answer_tone", kind=pref, cardinality=one)),
        (rf"^(?P<v>(?:请|希望你?|麻烦你?|记得|记住|{_STANDING}|{_ABOUT}(?:我|问题)?(?:时|的时候|里|中)?)*(?:不要再?|别再?|不用|不必|不准|不许|少|避免){_STYLE})$", Found("instruction", kind=pref)),
        (rf"^(?P<v>(?:请|希望你?|麻烦你?|记得|记住|你)*{_STANDING}{_STYLE})$", _standing_wish),
    ]  # fmt: skip


def _addressed() -> Sequence[_Entry]:
    """What to call the user."""
    one, pref = Cardinality.ONE, FactKind.PREFERENCE
    return [
        (r"(?:叫我|称呼我(?:为)?|喊我)(?!做|去|来|起|干|吃|给|的|过|回|加|怎么|什么)(?P<v>[^，。！？,;；!?\n]{1,12}?)(?:就行|就好|就可以|吧|即可)?" + _END, Found("call_me", kind=pref, cardinality=one)),
    ]  # fmt: skip


def _greeting() -> Sequence[_Entry]:
    """Names, in a message that greets."""
    one = Cardinality.ONE
    return [
        (rf"^我是(?P<v>{_SURNAME}[\u4e00-\u9fff]{{1,2}}|(?-i:[A-Z])[A-Za-z]{{1,20}}){_END}", Found("name", cardinality=one)),
    ]  # fmt: skip


def _person() -> Sequence[_Entry]:
    """Who the user is: name, age, work, places, school."""
    one = Cardinality.ONE
    return [
        (r"(?:我叫|我的名字(?:是|叫)|我名叫|本人叫|我的姓名是)(?!了|他|她|它|你|您|做|车|外卖|什么|人|不|苦|好|停|醒|上(?!官)|来|去|到|过|住|得|救|一|啥|谁)(?P<v>[^，。！？,;；!?\n\s]{1,12}|[A-Za-z][A-Za-z .'-]{0,30})" + _END, Found("name", cardinality=one)),
        (r"我的?(?:花名|昵称|网名|外号)(?:是|叫)" + _V + _END, Found("nickname", cardinality=one)),
        (r"我(?:今年)?(?:已经)?(?P<v>\d{1,3}|[一二三四五六七八九十]{1,3})岁", Found("age", cardinality=one)),
        (r"我的?生日(?:是|在)" + _V + _END, _birthday),
        (rf"我{_NOW}(?:从|离开了?){_V}(?:离职|辞职|走|跳槽|毕业)?(?:了)?{_END}", _left),
        (rf"我(?:已经|现在)*不(?:再|在)?(?:在)?{_V}(?:工作|上班|任职|干|做)了?{_END}", Found("employer", ended=True)),
        (rf"我{_NOW}在{_V}(?:(?:工作|上班|任职|就职|供职)了?|当{_JOB.replace('?P<v>', '?:')}|做{_JOB.replace('?P<v>', '?:')}){_END}", _job_or_city),
        (rf"我{_NOW}(?:入职|加入|跳槽(?:到|去)|换(?:工作)?到|去了|重返|回到?(?=[^，。！？,;；!?\n]{{1,20}}?(?:工作|上班|任职|公司)))(?:了)?{_V}(?:工作|上班|公司)?(?:了)?{_END}", _joined),
        (rf"我{_NOW}(?:已经)?(?:(?:[从由][^，。！？,;；!?\n]{{1,12}}?)?搬(?:家)?(?:到|去|回)(?:了)?|住在|定居(?:在|到)?|居住在|住到了?|常住|人在){_V}(?:了|这边|那边|生活)?{_END}", _city),
        (rf"我(?:家)?{_NOW}(?:家在|住|在住){_V}{_END}", _known_city),
        (rf"我家{_NOW}(?:在|住|住在){_V}{_END}", _known_city),
        (rf"我(?:已经)?不(?:再|在)?住(?:在)?{_V}了?{_END}", Found("city", ended=True)),
        (rf"我(?:是)?来自{_V}{_END}|我老家(?:在|是)(?P<v2>[^，。！？,;；!?\n]{{1,20}}?){_END}", _hometown),
        (r"我是(?P<v>[\u4e00-\u9fff]{2,8}?)人" + _END, _native),
        (rf"(?:我|本人)(?:{_NOW})(?:是|当|做|的职业是|的工作是|的职位是|转行做了?|改行做了?|转岗做了?)(?:一名|一个|一位|个|名|位|了|全职)*{_JOB}(?:了)?{_END}", Found("occupation", cardinality=one)),
        (rf"(?:我|本人)(?:是)?(?:做|搞|从事){_V}(?:的|工作|行业)(?:的)?{_END}", Found("occupation", cardinality=one)),
        (rf"我(?:的职业|的工作|的职位|的本职)是(?:一名|一个|一位)?{_V}{_END}", Found("occupation", cardinality=one)),
        (rf"我(?:在|就读于|毕业于|考上了?){_V}(?:上学|读书|读研|读博|念书|读大学)?{_END}(?<=学|书|研|博|校|院)", _school),
    ]  # fmt: skip


def _doings() -> Sequence[_Entry]:
    """Likes, languages, pets, what is used and decided."""
    return [
        (rf"我(?:已经)?(?:不再|不|再也不)(?:那么)?(?:喜欢|爱){_V}了{_END}", Found("likes", ended=True)),
        (rf"我{_ADV}(?:一点(?:儿)?(?:也|都)?|并|从来(?:都)?|从|完全|根本|实在|都|也|向来|一向)*(?:不(?:是很|怎么|太|大|那么)?(?:喜欢|爱)|讨厌|受不了|反感|不吃|吃不惯|不想吃)(?!你|他|她){_V}{_END}", Found("dislikes")),
        (rf"我最喜欢的(?P<k>[^，。！？,;；!?\n是]{{1,8}})(?:是|叫){_V}{_END}", _favourite),
        (rf"我{_ADV}(?:喜欢|爱|热爱|喜爱|钟爱|爱好是|的爱好是|迷上了?|爱上了?)(?!过|人|你|他|她|的|不){_V}{_END}", Found("likes")),
        (r"(?:我|^)(?:还|也|都)?会(?:说|讲)(?P<v>[\u4e00-\u9fff]{1,4}(?:语|文|话))", Found("language")),
        (r"我(?:家)?(?:还|也)?(?:养了|养着|养|有)(?:一|两|三|几)?(?:只|条|匹|头|个)?(?P<v>(?:叫\S{1,8}的)?[^，。！？\n]{0,8}?(?:猫|狗|兔子|仓鼠|鹦鹉|乌龟|鱼|金毛|柯基|橘猫|布偶))" + _END, Found("pet")),
        (rf"我{_ADV}(?:在|正在)?(?:学习|自学|在学|学)(?!会|到|过|校|生|费){_V}{_END}", Found("learning")),
        (rf"(?:我们?|咱们?)?{_NOW}[把将](?P<k>[^，。！？,;；!?\n我]{{2,16}}?)(?:[从由][^，。！？,;；!?\n]{{1,20}}?)?(?:升级?|迁移|切换|换|部署)(?:到|成|为|在|至)了?(?=[^，。！？,;；!?\n]{{0,39}}[A-Za-z0-9]){_V}(?:上|上面)?(?:了)?{_END}", _system),
        (rf"(?P<k>[^，。！？,;；!?\n我]{{2,32}}?)(?:现在|目前|已经|如今){{0,4}}(?:跑在|运行在|部署在|升级到了?|迁移到了?|换成了?){_V}(?:上|上面)?(?:了)?{_END}", _system),
        (rf"(?:我们?|咱们?)(?:已经)?(?:不再|不)(?:用|使用){_V}了{_END}", Found("uses", ended=True)),
        (rf"(?:我们?|咱们?)(?:最后|最终|还是|就|已经|都)*(?:决定|打算|确定|敲定|选定)(?:了)?(?:用|使用|采用|选|改用|换成|上)?{_V}{_END}", Found("decision")),
        (rf"^(?:那|好|行)?(?:最后|最终|还是|那就|就|那)+(?:决定)?(?:用|使用|采用|选|定|改用|换成|上){_V}{_END}", Found("decision")),
        (rf"(?:我们?|咱们?){_NOW}(?:在用|都用|一直用|平时用|改用|换成了?|用的是|使用的是|用){_V}{_END}(?<!来)(?<!去)", Found("uses")),
        (rf"我(?:家)?的(?P<k>[^，。！？,;；!?\n的是叫]{{1,8}})(?P<verb>是|叫|名叫|名字叫|改成了?|换成了?){_V}{_END}", _own_thing),
    ]  # fmt: skip


def _subjectless() -> Sequence[_Entry]:
    """Clauses without a subject, of somebody who speaks of themselves."""
    one = Cardinality.ONE
    return [
        (rf"^(?:是|做|当)(?:一名|一个|一位|个|名|位)?{_JOB}(?:的)?{_END}", Found("occupation", cardinality=one)),
        (rf"^(?:是)?(?:做|搞|从事){_V}(?:的|工作|行业)(?:的)?{_END}", Found("occupation", cardinality=one)),
        (rf"^(?:名字|姓名|大名|本名|全名)(?:是|叫)(?P<v>[^，。！？,;；!?\n\s]{{1,12}}|[A-Za-z][A-Za-z .'-]{{0,30}}){_END}", Found("name", cardinality=one)),
        (rf"^叫(?P<v>{_SURNAME}[\u4e00-\u9fff]{{1,2}}){_END}", Found("name", cardinality=one)),
        (rf"^(?:是)?来自{_V}{_END}", Found("hometown", cardinality=one)),
    ]  # fmt: skip


def _continuing() -> Sequence[_Entry]:
    """Clauses that go on with the subject of the one before."""
    return [
        (rf"^(?:也|还|而且|并且|但)?{_NOW}(?:搬(?:家)?(?:到|去|回)(?:了)?|住在|定居(?:在|到)|居住在|常住){_V}(?:了|这边|那边|生活)?{_END}", _city),
        (rf"^(?:而且|并且|但)?{_ADV}(?:不喜欢|不太喜欢|不爱|讨厌|受不了)(?!你|他|她){_V}{_END}", Found("dislikes")),
        (rf"^(?:而且|并且|但)?{_ADV}(?:喜欢|热爱|爱好是|迷上了?|爱上了?)(?!过|人|你|他|她|的|不){_V}{_END}", Found("likes")),
        (rf"^(?:而且|并且)?{_NOW}在{_V}(?:工作|上班|任职|就职){_END}", _job_or_city),
    ]  # fmt: skip


def _standing_wish(match: re.Match[str]) -> Made:
    said = match["v"]
    manner = re.sub(
        rf"{_STANDING}|{_ABOUT}|请|希望|麻烦|记得|记住|[你我都要来的了地得]|问题|给|一下", "", said
    )
    if not manner or _POINTS_AWAY.search(said):
        return None
    return Found("instruction", kind=FactKind.PREFERENCE)


def _left(match: re.Match[str]) -> Made:
    if not re.search(r"离职|辞职|离开|跳槽|走", match.group()):
        return None
    place = match["v"].strip()
    return Found("city" if place in words.CITIES_ZH else "employer", place, ended=True)


def _joined(match: re.Match[str]) -> Made:
    if "去了" in match.group() and not re.search(r"工作|上班|公司", match.group()):
        return None
    return _job_or_city(match)


def _hometown(match: re.Match[str]) -> Made:
    return Found("hometown", match["v"] or match["v2"] or "", cardinality=Cardinality.ONE)


def _native(match: re.Match[str]) -> Made:
    place = match["v"]
    return (
        Found("hometown", place, cardinality=Cardinality.ONE)
        if place in words.CITIES_ZH
        or place in words.PROVINCES_ZH
        or place.endswith(("省", "市", "县"))
        else None
    )


def _favourite(match: re.Match[str]) -> Made:
    return Found(f"最喜欢的{match['k'].strip()}", cardinality=Cardinality.ONE)
