# ruff: noqa: E501 - tables read better with one entry a line
"""Chinese statements that rules understand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from services.memory.domain import Cardinality, FactKind
from services.memory.extraction.found import Found

_V: Final = r"(?P<v>[^，。！？,;；!?\n]{1,40}?)"
_END: Final = r"(?=$|[，。！？,;；!?\n])"
_ADV: Final = r"(?:也|很|最|特别|非常|超级|超|真的|真|还是|现在|目前|如今|比较|一直|更|就|其实|从小就?|又|开始|平时|最近|挺|蛮|尤其)*"
_NOW: Final = r"(?:现在|目前|如今|已经|刚刚?|最近|今年|上个月|去年|前年|上周|这周|昨天|从\S{1,8}起|\d{4}年(?:\d{1,2}月)?|之前|以前)*"
_JOB: Final = (
    r"(?P<v>[^，。！？,;；!?\n的]{0,14}?(?:工程师|程序员|开发者|架构师|设计师|分析师|会计师|律师|医师|教师|老师|医生|护士|学生|研究生"
    r"|博士生?|硕士|作家|画家|厨师|司机|经理|主管|总监|教授|讲师|研究员|科学家|记者|编辑|翻译|顾问|店长|老板|创业者|博主|运营|产品"
    r"|产品经理|农民|木匠|电工|技师|摄影师|飞行员|消防员|警察|公务员|退休|自由职业者?|全栈|前端|后端|测试|运维|导演|演员|音乐人|咖啡师))"
)
_CITIES: Final = frozenset(
    [
        "北京",
        "上海",
        "广州",
        "深圳",
        "杭州",
        "南京",
        "苏州",
        "成都",
        "重庆",
        "武汉",
        "西安",
        "天津",
        "长沙",
        "郑州",
        "青岛",
        "厦门",
        "大连",
        "宁波",
        "无锡",
        "合肥",
        "济南",
        "福州",
        "昆明",
        "沈阳",
        "哈尔滨",
        "长春",
        "南昌",
        "贵阳",
        "南宁",
        "石家庄",
        "太原",
        "兰州",
        "海口",
        "珠海",
        "东莞",
        "佛山",
        "香港",
        "澳门",
        "台北",
        "东京",
        "纽约",
        "伦敦",
        "巴黎",
        "柏林",
        "新加坡",
        "首尔",
        "硅谷",
        "西雅图",
        "温哥华",
        "多伦多",
        "悉尼",
        "墨尔本",
    ]
)
_BRIEF: Final = r"(?P<v>简短|简洁|精简|精炼|简明|短一?点|短些|简单|言简意赅|一句话|别太长|不要太长|详细|详尽|具体|长一?点|深入)(?:一点|一些|点|些)?"
_ABOUT: Final = r"(?:回答|回复|答复|答案|说明|解释|输出|说话|回话|回应|讲解)"
_WHEN: Final = re.compile(
    r"^(?:大?前天|昨天|今天|上上?个?(?:周|星期|月)|这个?(?:周|星期|月)|去年|前年|今年|最近|刚刚?|已经|现在|目前|后来)+"
)
_LANG: Final = r"(?P<v>中文|英文|英语|汉语|普通话|粤语|日语|日文|法语|德语|韩语|西班牙语|俄语|文言文|简体中文|繁体中文)"


def _job_or_city(match: re.Match[str]) -> Found | None:
    place = match["v"].strip()
    if place in _CITIES or place.endswith(("市", "省")):
        return Found("work_city", place, cardinality=Cardinality.ONE)
    if place in {"这里", "那里", "家", "家里", "这儿", "哪里", "公司"}:
        return None
    return Found("employer", place)


def _own_thing(match: re.Match[str]) -> Found | None:
    thing = match["k"].strip()
    if thing in {
        "意思",
        "想法",
        "问题",
        "建议",
        "理解",
        "看法",
        "感觉",
        "目的",
        "要求",
        "重点",
        "观点",
        "电脑",
        "天",
    }:
        return None
    if (
        match["v"]
        .strip()
        .startswith(("什么", "怎么", "不", "说", "想", "要", "在", "很", "太", "被", "把", "因为"))
    ):
        return None
    return Found(thing, cardinality=Cardinality.ONE)


def _system(match: re.Match[str]) -> Found | None:
    subject = _WHEN.sub("", match["k"].strip())
    if not 2 <= len(subject) <= 16 or subject in {"这个", "那个", "他们", "我们", "你们"}:
        return None
    return Found(f"{subject}_runs_on", cardinality=Cardinality.ONE)


@lru_cache(maxsize=1)
def rules() -> Sequence[tuple[re.Pattern[str], object]]:
    """Patterns in order; the first that matches a clause is taken."""
    one, pref = Cardinality.ONE, FactKind.PREFERENCE
    table: list[tuple[str, object]] = [
        # How to answer.
        (rf"(?:用|使用|以|说|讲){_LANG}(?:来|跟我|给我|和我)?(?:{_ABOUT}|交流|沟通|说|写|聊)", Found("answer_language", kind=pref, cardinality=one)),
        (rf"{_ABOUT}(?:请|都|要|时|的时候|尽量|一律|最好|全部|统一)*(?:用|使用){_LANG}", Found("answer_language", kind=pref, cardinality=one)),
        (rf"{_ABOUT}(?:我|问题)?(?:的时候|时)?(?:请|都|要|尽量|最好|希望|可以|能|就|得|必须|务必)*(?:保持|写得?|得|说得?)?{_BRIEF}", Found("answer_length", kind=pref, cardinality=one)),
        (rf"(?:请|麻烦|希望你?|以后|今后|尽量|要|想要|喜欢|偏好|更喜欢|用|以){_BRIEF}(?:地|的|直接的?)?(?:话|语言|句子|文字|方式)?(?:来|跟我|给我)?(?:{_ABOUT})", Found("answer_length", kind=pref, cardinality=one)),
        (rf"{_ABOUT}(?:请|都|要|尽量|最好|希望|可以)*(?P<v>直接|正式|口语化|幽默|温柔|严肃|专业|通俗|委婉|客气)(?:一点|一些|点|些)?", Found("answer_tone", kind=pref, cardinality=one)),
        (r"(?:以后|今后|请|你可以|大家都?|可以)?(?:叫我|称呼我(?:为)?|喊我)(?!做|去|来|起|干|吃|给|的)(?P<v>[^，。！？,;；!?\n]{1,12}?)(?:就行|就好|就可以|吧|即可)?" + _END, Found("call_me", kind=pref, cardinality=one)),
        (rf"^(?P<v>(?:请|以后|今后|希望你|麻烦你?|记得)?(?:以后|今后|每次)?(?:不要|别|不用|务必|请|都|要)[^，。！？\n]{{0,16}}(?:{_ABOUT}|表格|列表|要点|表情|emoji|代码|例子|链接|出处|引用|格式|语气|敬语|客套|寒暄|道歉)[^，。！？\n]{{0,16}})$", Found("instruction", kind=pref)),
        # Who the user is.
        (r"(?:我叫|我的名字(?:是|叫)|我名叫|本人叫|我的姓名是)(?!了|他|她|你|做|车|外卖|什么|人)(?P<v>[^，。！？,;；!?\n\s]{1,12}|[A-Za-z][A-Za-z .'-]{0,30})" + _END, Found("name", cardinality=one)),
        (r"^(?:本人|名字|姓名|大名)(?:是|叫)(?P<v>[^，。！？,;；!?\n\s]{1,12}|[A-Za-z][A-Za-z .'-]{0,30})" + _END, Found("name", cardinality=one)),
        (r"我的?(?:花名|昵称|网名|外号)(?:是|叫)" + _V + _END, Found("nickname", cardinality=one)),
        (r"我(?:今年)?(?:已经)?(?P<v>\d{1,3}|[一二三四五六七八九十]{1,3})岁", Found("age", cardinality=one)),
        (r"我的?生日(?:是|在)" + _V + _END, Found("birthday", cardinality=one)),
        (rf"我(?:已经)?(?:从|离开了?){_V}(?:离职|辞职|走|跳槽|毕业)?(?:了)?{_END}", _left),
        (rf"我(?:已经)?不(?:再|在)?(?:在)?{_V}(?:工作|上班|任职|干|做)了?{_END}", Found("employer", ended=True)),
        (rf"我{_NOW}在{_V}(?:(?:工作|上班|任职|就职|供职)了?|当{_JOB.replace('?P<v>', '?:')}|做{_JOB.replace('?P<v>', '?:')}){_END}", _job_or_city),
        (rf"我{_NOW}(?:入职|加入|跳槽(?:到|去)|换(?:工作)?到|去了)(?:了)?{_V}(?:工作|上班|公司)?(?:了)?{_END}", _joined),
        (rf"我{_NOW}(?:已经)?(?:搬(?:家)?(?:到|去|回)(?:了)?|住在|定居(?:在|到)?|居住在|住到了?|常住|人在){_V}(?:了|这边|那边|生活)?{_END}", Found("city", cardinality=one)),
        (rf"我(?:已经)?不(?:再|在)?住(?:在)?{_V}了?{_END}", Found("city", ended=True)),
        (rf"我(?:是)?来自{_V}{_END}|我老家(?:在|是)(?P<v2>[^，。！？,;；!?\n]{{1,20}}?){_END}", _hometown),
        (r"我是(?P<v>[\u4e00-\u9fff]{2,8}?)人" + _END, _native),
        (rf"我(?:{_NOW})(?:是|当|做|的职业是|的工作是|的职位是|转行做了?|改行做了?|转岗做了?)(?:一名|一个|一位|个|名|位|了|全职)*{_JOB}{_END}", Found("occupation", cardinality=one)),
        (rf"^(?:是|做|当)(?:一名|一个|一位|个|名|位)?{_JOB}(?:的)?{_END}", Found("occupation", cardinality=one)),
        (rf"^我?(?:是)?(?:做|搞|从事){_V}(?:的|工作|行业)(?:的)?{_END}", Found("occupation", cardinality=one)),
        (rf"我(?:的职业|的工作|的职位|的本职)是(?:一名|一个|一位)?{_V}{_END}", Found("occupation", cardinality=one)),
        (rf"我(?:在|就读于|毕业于|考上了?){_V}(?:上学|读书|读研|读博|念书|读大学)?{_END}(?<=学|书|研|博|校|院)", Found("school", cardinality=one)),
        # Likes and the rest.
        (rf"我(?:已经)?(?:不再|不|再也不)(?:那么)?(?:喜欢|爱){_V}了{_END}", Found("likes", ended=True)),
        (rf"我{_ADV}(?:不喜欢|不太喜欢|不爱|讨厌|受不了|反感|不吃|吃不惯|不想吃){_V}{_END}", Found("dislikes")),
        (rf"我最喜欢的(?P<k>[^，。！？,;；!?\n是]{{1,8}})(?:是|叫){_V}{_END}", _favourite),
        (rf"我{_ADV}(?:喜欢|爱|热爱|喜爱|钟爱|爱好是|的爱好是|迷上了?|爱上了?)(?!过|人|你|他|她|的){_V}{_END}", Found("likes")),
        (r"(?:我|^)(?:还|也|都)?会(?:说|讲)(?P<v>[\u4e00-\u9fff]{1,4}(?:语|文|话))", Found("language")),
        (r"我(?:家)?(?:还|也)?(?:养了|养着|养|有)(?:一|两|三|几)?(?:只|条|匹|头|个)?(?P<v>(?:叫\S{1,8}的)?[^，。！？\n]{0,8}?(?:猫|狗|兔子|仓鼠|鹦鹉|乌龟|鱼|金毛|柯基|橘猫|布偶))" + _END, Found("pet")),
        (rf"我{_ADV}(?:在|正在)?(?:学习|自学|在学|学)(?!会|到|过|校|生|费){_V}{_END}", Found("learning")),
        (rf"(?P<k>[^，。！？,;；!?\n我]{{2,16}}?)(?:现在|目前|已经|如今)*(?:跑在|运行在|部署在|升级到了?|迁移到了?|换成了?){_V}(?:上|上面)?(?:了)?{_END}", _system),
        (rf"(?:我们?|咱们?)(?:已经)?(?:不再|不)(?:用|使用){_V}了{_END}", Found("uses", ended=True)),
        (rf"(?:我们?|咱们?)(?:最后|最终|还是|就|已经|都)*(?:决定|打算|确定|敲定|选定)(?:了)?(?:用|使用|采用|选|改用|换成|上)?{_V}{_END}", Found("decision")),
        (rf"^(?:那|好|行)?(?:最后|最终|还是|那就|就|那)+(?:决定)?(?:用|使用|采用|选|定|改用|换成|上){_V}{_END}", Found("decision")),
        (rf"(?:我们?|咱们?){_NOW}(?:在用|都用|一直用|平时用|改用|换成了?|用的是|使用的是|用){_V}{_END}(?<!来)(?<!去)", Found("uses")),
        (rf"我(?:家)?的(?P<k>[^，。！？,;；!?\n的是叫]{{1,8}})(?:是|叫|名叫|名字叫|改成了?|换成了?){_V}{_END}", _own_thing),
    ]  # fmt: skip
    return tuple((re.compile(pattern, re.IGNORECASE), make) for pattern, make in table)


def _left(match: re.Match[str]) -> Found | None:
    if not re.search(r"离职|辞职|离开|跳槽|走", match.group()):
        return None
    place = match["v"].strip()
    return Found("city" if place in _CITIES else "employer", place, ended=True)


def _joined(match: re.Match[str]) -> Found | None:
    if "去了" in match.group() and not re.search(r"工作|上班|公司", match.group()):
        return None
    return Found("employer", match["v"])


def _hometown(match: re.Match[str]) -> Found | None:
    return Found("hometown", match["v"] or match["v2"] or "", cardinality=Cardinality.ONE)


def _native(match: re.Match[str]) -> Found | None:
    place = match["v"]
    return (
        Found("hometown", place, cardinality=Cardinality.ONE)
        if place in _CITIES or place.endswith(("省", "市", "县"))
        else None
    )


def _favourite(match: re.Match[str]) -> Found | None:
    return Found(f"最喜欢的{match['k'].strip()}", cardinality=Cardinality.ONE)
