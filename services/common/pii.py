# ruff: noqa: E501 - tables read better with one entry a line
"""Personal data by rule: Chinese and international identifiers, with their check digits.

Applied before a text is stored, logged or sent to a model. A number that fails its check digit is not
taken for an identity number, so that order numbers and measurements stay readable.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from services.common.unicode import mixed

_CN_ID_WEIGHTS: Final = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CN_ID_CHECK: Final = "10X98765432"
# Length by first digits: American Express, Diners, JCB, Visa, Mastercard, Maestro, UnionPay, ICBC.
_ISSUERS: Final = (
    r"(?:3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35\d{14}|4(?:\d{12}|\d{15}|\d{18})|5\d{15}"
    r"|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|(?:5[06-8]|6\d)\d{12,17}|9558\d{12,15})$"
)
_USCC_ALPHABET: Final = "0123456789ABCDEFGHJKLMNPQRTUWXY"
_HAN: Final = r"\u3400-\u4dbf\u4e00-\u9fff"
# Of names and hosts: Latin, Greek, Cyrillic.
_LETTERS: Final = r"A-Za-z0-9_\u00c0-\u052f"
_HOST: Final = rf"(?:[{_LETTERS}-]{{1,63}}|[{_HAN}]{{1,20}}[{_LETTERS}-]{{0,43}})"
# What ends a secret.
_STOPS: Final = r"\s,，。;；\"'“”‘’"
# After an English name: "API key是什么" is a question.
_IS_ZH: Final = r"(?:是|为|叫|改成了?)(?=\s{0,4}[\"'“‘]?[!-~])"
# Between the digits of a number that is called one: it is spelt out, not a list.
_APART: Final = r"[ .()-]{0,2}"
_USCC_WEIGHTS: Final = (1, 3, 9, 27, 19, 26, 16, 17, 20, 29, 25, 13, 8, 24, 10, 30, 28)


@dataclass(frozen=True)
class Redaction:
    """A text with personal data replaced by `[kind]`, and the kinds found (no content)."""

    text: str
    kinds: tuple[str, ...]


def cn_id_valid(number: str) -> bool:
    """Check digit of an 18-digit identity number (GB 11643-1999, ISO 7064 MOD 11-2)."""
    digits = number.upper()
    if not re.fullmatch(r"\d{17}[\dX]", digits):
        return False
    total = sum(int(d) * w for d, w in zip(digits, _CN_ID_WEIGHTS, strict=False))
    return _CN_ID_CHECK[total % 11] == digits[17]


def luhn_valid(number: str) -> bool:
    """Luhn check of a card number (ISO/IEC 7812-1)."""
    digits = [int(c) for c in number if c.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return False
    total = 0
    for place, digit in enumerate(reversed(digits)):
        doubled = digit * 2 if place % 2 else digit
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0


def _card_valid(number: str) -> bool:
    """Whether a number starts and ends as those of cards do: an order number that starts with its
    day passes the check digit one time in ten."""
    return re.match(_ISSUERS, re.sub(r"\D", "", number)) is not None and luhn_valid(number)


def uscc_valid(code: str) -> bool:
    """Check character of a unified social credit code (GB 32100-2015, MOD 31-3)."""
    code = code.upper()
    if len(code) != 18 or any(c not in _USCC_ALPHABET for c in code):
        return False
    pairs = zip(code, _USCC_WEIGHTS, strict=False)
    total = sum(_USCC_ALPHABET.index(c) * w for c, w in pairs)
    return _USCC_ALPHABET[(31 - total % 31) % 31] == code[17]


def iban_valid(iban: str) -> bool:
    """MOD 97-10 check of an IBAN (ISO 13616)."""
    compact = re.sub(r"[\s-]", "", iban).upper()
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", compact):
        return False
    turned = compact[4:] + compact[:4]
    return int("".join(str(int(c, 36)) for c in turned)) % 97 == 1


def _ssn_valid(number: str) -> bool:
    area, group, serial = re.split(r"[- ]", number)
    return area not in {"000", "666"} and area < "900" and group != "00" and serial != "0000"


def _always(_: str) -> bool:
    return True


def _secret_like(value: str) -> bool:
    """Whether a word after "password is" is one: not a plain word or sentence."""
    word = value.strip(".!?-_")
    return any(c.isdigit() for c in word) or (
        len(word) >= 6 and word.isascii() and not re.fullmatch(r"[A-Za-z_-]+", word)
    )


def _compact(check: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: check(re.sub(r"[\s-]", "", text))


# Order matters: the most specific first, because a span that is taken is not looked at again.
_RULES: Final[tuple[tuple[str, re.Pattern[str], Callable[[str], bool]], ...]] = (
    (
        "private_key",
        mixed(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        _always,
    ),
    ("jwt", mixed(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"), _always),
    (
        "api_key",
        mixed(
            r"\b(?:sk|pk|rk)[-_](?=[A-Za-z0-9_-]{0,80}?\d|[A-Za-z_-]{0,80}?[a-z][A-Z]|(?:proj|live|test)[-_])[A-Za-z0-9_-]{16,}|\bnpm_[A-Za-z0-9]{30,}|\bnl_[A-Za-z0-9_-]{32,}"
            r"|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
            r"|\bglpat-[\w-]{16,}|\bxox[abprs]-[\w-]{10,}|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}"
            r"|\bLTAI[A-Za-z0-9]{12,}"
        ),
        _always,
    ),
    (
        "secret",
        mixed(
            r"(?:(?:api[ _-]?key|access[ _-]?key|secret(?:[ _-]?(?:access[ _-]?)?key)?|(?:access|auth|refresh)[ _-]?token|password|passwd|pwd)"
            rf"[\"']?\s{{0,4}}(?:is|was|[:=]|{_IS_ZH})\s{{0,4}}[\"'“‘]?|\btoken\s{{0,4}}(?:[:=]|{_IS_ZH})\s{{0,4}}[\"']?(?!\d{{1,9}}(?![\w.-]))|\bbearer\s{{1,4}}(?:[:=]\s{{0,4}})?"
            r"|(?:密码|口令|密钥|金钥|令牌|权杖)\s{0,4}(?:是|为|叫|改成了?|[:=：])\s{0,4}[\"'“‘]?)"
            # Up to the Chinese that goes on after it, where it has a digit or a mark before that.
            rf"(?P<value>(?=[A-Za-z_-]*[^{_STOPS}{_HAN}、A-Za-z_-])[^{_STOPS}{_HAN}、]{{6,}}|[^{_STOPS}]{{6,}})",
            re.IGNORECASE,
        ),
        _secret_like,
    ),
    (
        "secret",
        mixed(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,64}:(?P<value>[^\s:/@]{3,128})@"),
        _always,
    ),
    (
        "cn_id",
        mixed(
            r"(?<![0-9A-Za-z])\d{6}[ -]?(?:18|19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
            r"[ -]?\d{3}[\dXx](?![0-9A-Za-z])"
        ),
        _compact(cn_id_valid),
    ),
    (
        # What is called an identity number is one, even the old form or with a digit mistyped.
        "cn_id",
        mixed(
            rf"(?:身[份分]证|驾驶证)号?码?\s{{0,2}}(?:是|为|[:：])?\s{{0,2}}(?P<value>\d(?:{_APART}\d){{16}}{_APART}[\dXx](?![0-9A-Za-z])|\d(?:{_APART}\d){{14}}(?!\d))"
        ),
        _always,
    ),
    (
        "cn_uscc",
        mixed(r"(?<![0-9A-Za-z])[0-9A-HJ-NPQRTUWXY]{2}\d{6}[0-9A-HJ-NPQRTUWXY]{10}(?![0-9A-Za-z])"),
        uscc_valid,
    ),
    (
        "cn_uscc",
        mixed(
            r"(?:信用代码|税号|纳税人识别号)\s{0,2}(?:是|为|[:：])?\s{0,2}(?P<value>[0-9A-Z](?:[ -]?[0-9A-Z]){17}(?![0-9A-Za-z]))"
        ),
        _always,
    ),
    (
        "bank_card",
        mixed(
            r"(?<![\d.])3[47]\d{2}[ -]?\d{6}[ -]?\d{5}(?![\d.]\d|\d)|(?<![\d.])\d{4}(?:[ -]?\d{4}){2}(?:[ -]?\d{1,4}){1,2}(?![\d.]\d|\d)"
        ),
        _card_valid,
    ),
    (
        "bank_card",
        mixed(
            rf"(?:卡号|银行卡|信用卡|储蓄卡|银行账[号户]|\bcard (?:number|no\.?))[号码]{{0,2}}\s{{0,2}}(?:is|是|为|[:：])?\s{{0,2}}(?P<value>\d(?:{_APART}\d){{14,18}}(?!\d))",
            re.IGNORECASE,
        ),
        _always,
    ),
    (
        "iban",
        mixed(r"\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,4})?\b"),
        iban_valid,
    ),
    (
        "ssn",
        mixed(
            r"\b(?:ssn|social security(?: number)?)(?:(?: is|[:#])?\s{1,2}|\s?(?:号码?)?(?:是|为|[:#])\s{0,2})(?P<value>\d{9})(?!\d)",
            re.IGNORECASE,
        ),
        _always,
    ),
    ("ssn", mixed(r"(?<![\d-])\d{3}[- ]\d{2}[- ]\d{4}(?![\d-])"), _ssn_valid),
    (
        "cn_mobile",
        mixed(
            r"(?<![\d.+])(?:(?:\+|00)?86[ -]?)?(?:1[3-9]\d|\(1[3-9]\d\))[ .-]?\d{4}[ .-]?\d{4}(?![\d.]\d|\d)"
        ),
        _always,
    ),
    (
        "cn_mobile",
        mixed(
            rf"(?:手机|电话|联[系络]方式|\b(?:tel|phone|mobile|cell)(?: (?:number|no\.?))?)号?码?\s{{0,2}}(?:is|是|为|[:：])?\s{{0,2}}(?P<value>\(?1{_APART}[3-9](?:{_APART}\d){{9}}(?!\d))",
            re.IGNORECASE,
        ),
        _always,
    ),
    (
        "phone",
        mixed(r"(?<![\d.-])\(?0(?:10|2\d|[3-9]\d{2})\)?[ -]\d{3,4}[ -]?\d{4}(?![\d-])"),
        _always,
    ),
    (
        "email",
        # From the @ on; of what stands before it see `_name_start`.
        re.compile(
            rf"@(?<=[\w.+-]@)(?:(?<!(?<![{_LETTERS}.+-])git@)|(?![\w.-]{{1,255}}:))"
            rf"(?:(?:{_HOST}\.){{1,9}}|(?:[\w-]{{1,63}}\.){{1,9}})(?:(?i:xn--)[A-Za-z0-9-]{{1,59}}|[A-Za-z]{{2,24}}|中国|公司|网络)(?![A-Za-z0-9])"
        ),
        _always,
    ),
    (
        "phone",
        mixed(
            r"(?<![\w.])\+\d{1,3}[ .()0-]{0,5}\d{1,4}(?:[ .()-]{1,2}\d{2,6}){1,4}(?!\d)|(?<![\w.])\+(?!86)\d{9,14}(?!\d)"
        ),
        _always,
    ),
    (
        "phone",
        mixed(r"(?<![\d-])\(?(?!400|800)[2-9]\d{2}\)?[ .-]\d{3}[.-]\d{4}(?![\d-])"),
        _always,
    ),
    (
        "address",
        mixed(
            r"(?![这那哪])(?:(?![在到去住是])[\u4e00-\u9fff]){1,28}?(?:大街|大道|路|街|巷|弄|胡同)(?:[一二三四五六七八九十]段)?"
            r"\s?\d{1,5}\s?[号弄](?![前后之线])(?:\s?[\dA-Za-z]{1,5}\s?(?:号楼|栋|幢|楼|单元|层|室|号|房))*"
        ),
        _always,
    ),
    (
        "address",
        mixed(
            r"\b\d{1,5}[A-Z]? (?:[NSEW]\.? )?(?:[A-Z][a-z]+ ){1,3}(?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln"
            r"|Boulevard|Blvd|Drive|Dr|Court|Ct|Square|Sq)\b(?! (?:of|[a-z]{3,8}s)\b|-|['’])\.?(?:,? (?:Apt|Unit|#) ?\w+)?"
        ),
        _always,
    ),
)


# What the name before an @ may be, the first that fits: Chinese straight before a name in letters was
# said before it, and so was more Chinese than a name has. In other scripts, or mixed, there is no
# telling where a name begins: everything that may belong to it is taken.
_NAMES: Final = (
    re.compile(rf"[{_LETTERS}.+-]+\Z"),
    re.compile(rf"(?<![{_LETTERS}{_HAN}.+-])[{_HAN}]{{1,8}}\Z"),
    re.compile(r"[\w.+-]+\Z"),
)
_NAME_LENGTH: Final = 64

# Kinds whose digits alone say nothing: inside a key, a hash or a UUID they are a part of it.
_BARE_NUMBERS: Final = frozenset({"bank_card", "cn_mobile", "phone", "ssn"})
_UUID: Final = re.compile(
    r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])"
)
_UUID_LENGTH: Final = 36
_WORD_END: Final = re.compile(r"[0-9A-Za-z]*\Z")
_WORD_START: Final = re.compile(r"[0-9A-Za-z]*")
_HASH: Final = re.compile(r"(?=(?:.*[A-Fa-f]){2})[0-9A-Fa-f]{20,}")
# Longer words are not told apart any further.
_WORD_LIMIT: Final = 256

# At least one of these is in whatever a rule above matches: most texts hold none.
_NEEDED: Final = re.compile(
    # A number of seven digits or more, one with its country, a house number.
    r"(?:\d[^\d\n]{0,6}){6}\d|\+\d|(?:街|道|路|巷|弄|同|段)\s?\d"
    r"|(?a:\b)(?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Boulevard|Blvd|Drive|Dr|Court|Ct|Square|Sq)(?a:\b)"
    r"|@|://|-----BEGIN|eyJ|[srp]k[-_]|npm_|nl_|AKIA|gh[pousr]_|github_pat_|glpat-|xox|AIza|hf_|LTAI"
    r"|[Kk][Ee][Yy]|[Ss][Ee][Cc][Rr][Ee][Tt]|[Tt][Oo][Kk][Ee][Nn]|[Pp][Aa][Ss][Ss][Ww]|[Pp][Ww][Dd]"
    r"|[Bb][Ee][Aa][Rr][Ee][Rr]|密码|口令|密钥|金钥|令牌|权杖"
)
# As the rules write them: letters of full width, dashes, and the traditional form of their words.
_AS_WRITTEN: Final = (
    {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
    | {ord(dash): "-" for dash in "‐‑‒–—―−"}
    | str.maketrans(
        "號碼證駕駛為電話機聯係繫絡銀帳賬戶稅納識別儲單層樓棟線後這鑰權國網貳參叄陸兩萬",
        "号码证驾驶为电话机联系系络银账账户税纳识别储单层楼栋线后这钥权国网贰叁叁陆两万",
    )
)
# Beyond these NFKC has to say what a character is.
_TO_FOLD: Final = re.compile(
    "[^\x00-\x7f\u4e00-\u9fff\u3001\u3002\u3008-\u3011\uff01-\uff5e“”‘’‐-―·]"
)
_NUMERALS: Final = "零〇一二三四五六七八九幺壹贰叁肆伍陆柒捌玖"
_DIGITS: Final = str.maketrans(_NUMERALS, "001234567891123456789")
# A number of a mobile's length or more as it is dictated, not one with its tens and hundreds.
_SPELT: Final = re.compile(
    rf"(?<![{_NUMERALS}十百千万])[{_NUMERALS}](?:[ -]?[{_NUMERALS}]){{10,}}(?:[ -]?[Xx])?(?![{_NUMERALS}十百千万])"
)


def _folded(text: str) -> tuple[str, Sequence[int] | None]:
    """The text as it is read: digits, letters and dashes plain, spelt numbers in digits, what is
    invisible left out. And where each character stood; None where each stands where it stood."""
    if text.isascii():
        return text, None
    places: list[int] | None = None
    if _TO_FOLD.search(text) is not None:
        kept = [(n, c) for n, c in enumerate(text) if unicodedata.category(c) != "Cf"]
        if len(kept) < len(text):
            places = [n for n, _ in kept]
        text = "".join(
            folded if len(folded := unicodedata.normalize("NFKC", c)) == 1 else c for _, c in kept
        )
    text = text.translate(_AS_WRITTEN)
    return _SPELT.sub(lambda m: m.group().translate(_DIGITS), text), places


def _in_identifier(text: str, start: int, end: int) -> bool:
    """Whether the number at `start:end` is a part of a longer name: a UUID, a hash, a key with letters
    on both sides. A word straight before a number ("tel13812345678") does not make it one."""
    uuids = _UUID.finditer(text, max(0, start - _UUID_LENGTH), end + _UUID_LENGTH)
    if any(m.start() < end and start < m.end() for m in uuids):
        return True
    before = _WORD_END.search(text, max(0, start - _WORD_LIMIT), start)
    after = _WORD_START.match(text, end, end + _WORD_LIMIT)
    head, tail = before.group() if before else "", after.group() if after else ""
    return (
        (bool(head) and bool(tail))
        or (any(map(str.isdigit, head)) and any(map(str.isalpha, head)))
        or (bool(head or tail) and _HASH.fullmatch(head + text[start:end] + tail) is not None)
    )


def _name_start(text: str, at: int, taken: bytearray) -> int:
    """Where the name before the @ at `at` begins; `at` where there is none. It goes back to what is
    taken already: the end of another address."""
    first = max(0, at - _NAME_LENGTH)
    first = taken.rfind(1, first, at) + 1 or first
    found = (pattern.search(text, first, at) for pattern in _NAMES)
    return next((match.start() for match in found if match), at)


def redact(text: str) -> Redaction:
    """Replace personal data by `[kind]`. Never raises; a clean text comes back unchanged."""
    folded, places = _folded(text)
    if _NEEDED.search(folded) is None:
        return Redaction(text, ())
    spans: list[tuple[int, int, str]] = []
    taken = bytearray(len(folded))
    for kind, pattern, check in _RULES:
        for match in pattern.finditer(folded):
            group = "value" if "value" in pattern.groupindex else 0
            start, end = match.span(group)
            if kind == "email" and (start := _name_start(folded, at := start, taken)) == at:
                continue
            if taken.find(1, start, end) >= 0 or not check(match.group(group)):
                continue
            if group == 0 and kind in _BARE_NUMBERS and _in_identifier(folded, start, end):
                continue
            spans.append(
                (start, end, kind) if places is None else (places[start], places[end - 1] + 1, kind)
            )
            taken[start:end] = b"\1" * (end - start)
    if not spans:
        return Redaction(text, ())
    out: list[str] = []
    at = 0
    for start, end, kind in sorted(spans):
        out += [text[at:start], f"[{kind}]"]
        at = end
    out.append(text[at:])
    return Redaction("".join(out), tuple(sorted({kind for _, _, kind in spans})))
