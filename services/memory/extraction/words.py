# ruff: noqa: E501 - tables read better as running words
"""Closed lists that the rules of both languages consult."""

from __future__ import annotations

from typing import Final


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


PEOPLE_EN: Final = _set(
    """wife husband partner girlfriend boyfriend fiance fiancee spouse mom mum mother dad father parents brother sister son daughter child kid kids
    baby grandma grandpa grandmother grandfather aunt uncle cousin nephew niece friend boss manager colleague coworker teammate neighbor neighbour
    roommate flatmate teacher professor student doctor dentist therapist landlord client customer advisor supervisor mentor team family"""
)
OWN_THINGS_EN: Final = _set(
    """hobby hobbies major minor degree specialty speciality expertise field profession trade nationality stack editor ide os shell distro
    framework language team department role title school university college company employer timezone pronouns birthday nickname username
    handle hometown sign"""
)
NOT_A_THING_EN: Final = _set(
    """birthday question point idea guess understanding problem goal plan concern bad apologies mistake issue view opinion answer request task name"""
)
NOT_A_NAME_EN: Final = _set(
    """not on in at the a an very so too hard easy important unimportant known listed written spelled misspelled wrong correct irrelevant private
    secret mud unknown what this that none long short back later tomorrow today tonight when if old crazy stupid maybe anytime soon again out up
    over now after before whatever anything something names lazy paranoid cynical please and or but for from to with by"""
)
NOT_A_CITY_EN: Final = _set(
    """vim neovim emacs linux windows mac macos docker kubernetes python rust java javascript typescript go notion slack redis git github gitlab azure
    aws gcp postgres mysql chrome firefox safari android ios kafka obsidian vscode microservices monorepo agile scrum kanban serverless terraform jira linear confluence postgresql mongodb oracle sqlite mariadb graphql react vue angular svelte node
    nodejs deno bun swift kotlin rails django flask fastapi spring figma zoom discord elasticsearch nginx heroku vercel debian ubuntu fedora k8s plan step phase chapter section"""
)
CITIES_EN: Final = _set(
    """london paris berlin madrid rome vienna prague budapest warsaw amsterdam brussels dublin lisbon oslo stockholm helsinki copenhagen zurich geneva
    munich hamburg milan barcelona athens istanbul moscow tokyo osaka kyoto seoul beijing shanghai shenzhen guangzhou hangzhou chengdu taipei
    singapore bangkok hanoi jakarta manila delhi mumbai bangalore dubai cairo lagos nairobi sydney melbourne auckland toronto vancouver montreal
    chicago boston seattle austin denver portland miami atlanta dallas houston philadelphia"""
)
PROVINCES_ZH: Final = _set(
    """河北 山西 辽宁 吉林 黑龙江 江苏 浙江 安徽 福建 江西 山东 河南 湖北 湖南 广东 海南 四川 贵州 云南 陕西 甘肃 青海 台湾 内蒙古 广西 西藏 宁夏
    新疆 东北 温州 绍兴 潮汕 洛阳 徐州 烟台 桂林 三亚 拉萨 银川 西宁 乌鲁木齐 呼和浩特"""
)
NOT_A_THING_ZH: Final = _set(
    "意思 想法 问题 建议 理解 看法 感觉 目的 要求 重点 观点 电脑 天 回答 答案 错 名字 姓名 话 结论 原因 情况 任务 目标 计划 打算 判断"
)
CITIES_ZH: Final = _set(
    """北京 上海 广州 深圳 杭州 南京 苏州 成都 重庆 武汉 西安 天津 长沙 郑州 青岛 厦门 大连 宁波 无锡 合肥 济南 福州 昆明 沈阳 哈尔滨 长春 南昌 贵阳 南宁 石家庄
    太原 兰州 海口 珠海 东莞 佛山 香港 澳门 台北 东京 纽约 伦敦 巴黎 柏林 新加坡 首尔 硅谷 西雅图 温哥华 多伦多 悉尼 墨尔本"""
)
