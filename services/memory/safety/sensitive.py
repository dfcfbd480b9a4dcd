# ruff: noqa: E501 - tables read better with one entry a line
"""Categories that are never kept as facts, notes or summaries: health, money, identity, address.

Judged on the derived sentence, by words of both languages and scripts. The turn itself stays as the user said it
(personal numbers apart): this is about what the system concludes of a person.
"""

from __future__ import annotations

import re
from typing import Final

from services.common.unicode import mixed
from services.memory.script import folded

_HEALTH: Final = mixed(
    r"\b(?:diagnos\w*|disease|cancer|tumou?r|diabet\w*|depress(?:ion|ed)|anxiety|hiv|aids|surgery"
    r"|chemotherapy|medication|antidepressant\w*|prescri\w+|symptom\w*|pregnan\w*|blood pressure"
    r"|hypertension|asthma|epilep\w*|schizophren\w*|bipolar|disorder|therapist|psychiatr\w*|miscarriage)\b"
    r"|确诊|诊断|患有|患了|得了.{0,6}(?:病|症|炎|癌)|癌|肿瘤|糖尿病|抑郁|忧郁症|躁郁|焦虑症|高血压|心脏病|哮喘|癫痫"
    r"|[艾爱]滋|气喘病|怀孕|流产|手术|化疗|吃药|服药|处方|病历|体检|住院|精神分裂|传染病|乙肝",
    re.IGNORECASE,
)
_MONEY: Final = mixed(
    r"\b(?:salary|income|net worth|mortgage|debt|loan|bank account|account balance|credit (?:card|score)"
    r"|savings|i earn|bankrupt\w*|tax return)\b"
    r"|工资|薪[资水]|月薪|年薪|收入|存款|余额|负债|欠款|贷款|房贷|信用卡|银行卡|银行账户|账号|存折|资产|破产|信用分",
    re.IGNORECASE,
)
_IDENTITY: Final = mixed(
    r"\b(?:passport|social security|ssn|driver'?s licen[cs]e|id number|national id)\b"
    r"|身[份分]证|护照|社保号|健保卡|驾驶证|驾照|证件号|\[(?:cn_id|cn_uscc|bank_card|iban|ssn|cn_mobile|phone|email"
    r"|address|api_key|secret|jwt|private_key)\]",
    re.IGNORECASE,
)
_ADDRESS: Final = mixed(
    r"\b(?:my|home|exact|street|mailing) address\b|\bapt\.? ?\d|家庭住址|住址是|门牌|详细地址"
    r"|\d(?:号楼|单元|室)|[路街巷弄]\d{1,6}号",
    re.IGNORECASE,
)


def is_sensitive(text: str) -> str | None:
    """The category that forbids keeping `text` ("health", "money", "identity", "address"), or None."""
    seen = folded(text)
    for category, pattern in (
        ("health", _HEALTH),
        ("money", _MONEY),
        ("identity", _IDENTITY),
        ("address", _ADDRESS),
    ):
        if pattern.search(seen):
            return category
    return None
