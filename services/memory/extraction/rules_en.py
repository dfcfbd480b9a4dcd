# ruff: noqa: E501 - tables read better with one entry a line
"""English statements that rules understand."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from services.memory.domain import Cardinality, FactKind
from services.memory.extraction import words
from services.memory.extraction.found import Found, Made, Rule

_Entry = tuple[str, Found | Callable[[re.Match[str]], Made]]

_V: Final = r"(?P<v>[^.,;!?\n]{1,60}?(?:\.\d[^,;!?\n]{0,20}?)?)"
_END: Final = r"(?=\s*(?:$|[.,;!?\n]|\bbecause\b|\bsince\b|\bbut\b|\band (?:i|my|we)\b))"
_ADV: Final = r"(?:(?:really|also|still|now|currently|just|always|absolutely|truly|actually|so|very|much|definitely|recently|already|finally|personally|usually|mostly|simply|quite|kind of|both)\s+)*"
_JOB: Final = (
    r"(?P<v>(?:(?!(?:not|no|never|an?|the|to|for|with|of|in|on|at|about|from|like|my|your|his|her|their|our|as|than|going|calling|seeing|dating|married|looking|waiting)\b)[a-z-]+ ){0,4}?"
    r"(?:engineer|developer|programmer|designer|teacher|doctor|nurse|lawyer|student|writer|artist"
    r"|chef|cook|driver|manager|director|professor|researcher|scientist|journalist|editor|translator|interpreter|consultant|founder|analyst"
    r"|architect|accountant|photographer|pilot|farmer|electrician|carpenter|musician|barista|bartender|waiter|waitress|freelancer|librarian|pharmacist"
    r"|mechanic|dentist|veterinarian|vet|salesperson|marketer|administrator|technician|plumber|baker|painter|actor|actress|entrepreneur|surgeon|paramedic"
    r"|firefighter|police officer|soldier|judge|historian|philosopher|economist|statistician|mathematician|physicist|chemist|biologist|astronomer|geologist"
    r"|psychologist|hairdresser|barber|tailor|welder|gardener|florist|singer|dancer|composer|producer|animator|illustrator|intern|secretary|receptionist"
    r"|cashier|banker|broker|trader|recruiter|realtor|tutor|coach|trainer|lecturer|principal|tester|sysadmin|sre|ceo|cto|cfo|coo|product owner|scrum master))(?!['’\w])"
)
_LANG: Final = r"(?P<v>English|Chinese|Mandarin|Cantonese|Japanese|French|German|Spanish|Korean|Russian|Italian|Portuguese|Arabic|Hindi|Dutch)"
_BRIEF: Final = r"(?P<v>short|brief|concise|terse|to the point|succinct|compact|detailed|long|thorough|in depth|verbose|one sentence)"


_MANNER: Final = r"(?:bullet points|tables|emojis?|code examples|examples|links|citations|sources|markdown|headings|plain (?:english|language|text)|formal language|simple words)"
_STYLE: Final = rf"[^.,;!?\n]{{0,40}}?\b(?:answer(?:s|ing)?|repl(?:y|ies)|responses?|{_MANNER}|bullet points?|tables?|code|headings?|apologi[sz]\w*|jargon|small talk|formal|filler)\b[^.,;!?\n]{{0,30}}"
# Without one of these "please give me an example" is a request for once, not a wish for good.
_STANDING: Final = (
    r"(?:from now on|in (?:the )?future|always|every time|whenever you answer|going forward)"
)
# A wish that only points to something that is not in it ("the way I like") says nothing later.
_POINTS_AWAY_EN: Final = re.compile(
    r"\b(?:the way i|how i|as i|what i|like (?:before|last time|that|this)|as (?:before|usual|always)|appropriately|properly|(?:this|that|these|those) (?:\w+ )?(?:code|text|question|table|answer|list|file))\b",
    re.IGNORECASE,
)


# What may stand before a wish about answers: whoever is told of it, it is the assistant that is asked.
_ASKING: Final = re.compile(
    r"^(?:(?:please|pls|kindly|from now on|in (?:the )?future|always|every time|can you|could you|would you|will you|you should|you can|you must|you may"
    r"|i (?:want|need|would like|prefer|'d like)(?: it)?(?: if)?(?: you)?(?: to)?|i'd (?:like|prefer|love)(?: it)?(?: if)?(?: you)?(?: to)?|try to|make sure(?: to| you)?|remember to"
    r"|and|but|so|also|ok(?:ay)?|hi|hello|hey|just|to|me|then|thanks|thank you|when you answer|for me|in this chat|my preference is)[\s,:]*)*$",
    re.IGNORECASE,
)
_NOT_AN_EMPLOYER: Final = re.compile(
    r"^(?:fun|free|myself|money|now|home|night|nights|it|least|once|all|weekends|peace|times|hire|hours|a living|a while|the (?:weekend|moment|same)|\d|(?:his|her|their)\b)",
    re.IGNORECASE,
)


_DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|week|(?:jan|febr)uary|march|april|may\b|june|july|august|(?:septem|octo|novem|decem)ber"
# "runs on the beach", "runs on time": nothing that is called by a name.
_NO_SYSTEM: Final = (
    r"(?:the|an?|this|that|my|our|your)\s+(?![A-Z])|(?:time|schedule|track|hold|fumes|empty|coffee|sugar|batter\w+|adrenaline|solar|wind"
    r"|tracks|rails?|treadmills?|grass|sand|page|top|foot|it|them|him|her|me|you|us|nothing|something|everything)\b"
)
_LEARNS_NOTHING: Final = re.compile(
    r"(?:(?:an?|the)\s+)?(?:lot|bit|little|ton|few|exam)s?\b|(?:for|from|about|at|in|on|by|with|more|hard|this|that|it|how|what|why|here|now|abroad|every)\b",
    re.IGNORECASE,
)


def _learning(match: re.Match[str]) -> Made:
    return None if _LEARNS_NOTHING.match(match["v"].strip()) else Found("learning")


def _birthday(match: re.Match[str]) -> Made:
    dated = re.search(rf"\d|{_DAY}", match["v"], re.IGNORECASE)
    return Found("birthday", cardinality=Cardinality.ONE) if dated else None


def _proper(value: str) -> bool:
    """Whether a value is written as a name."""
    return value[:1].isupper() or not value[:1].isascii()


def _named(attribute: str) -> Callable[[re.Match[str]], Made]:
    def make(match: re.Match[str]) -> Made:
        parts = match["v"].split()
        if any(part.casefold() in words.NOT_A_NAME_EN for part in parts):
            return None
        return Found(attribute, cardinality=Cardinality.ONE)

    return make


def _thing(match: re.Match[str]) -> Made:
    key, value = match["k"].strip().lower(), match["v"].strip()
    favourite = re.match(r"favou?rite ", key)
    called = match["verb"].lower().endswith(("called", "named")) or key.endswith("'s name")
    head = key.split()[-1].removesuffix("'s")
    if key in words.NOT_A_THING_EN or (
        head in words.NOT_A_THING_EN and not favourite and not called
    ):
        return None
    if not favourite and not called:
        if any(word.removesuffix("'s") in words.PEOPLE_EN for word in key.split()):
            return None
        # "my computer is slow" says how things are today.
        bare = re.sub(r"^(?:an?|the)\s+", "", value)
        if head not in words.OWN_THINGS_EN and not (bare[:1].isupper() or re.search(r"\d", bare)):
            return None
    return Found(re.sub(r"^favou?rite ", "favorite ", key), cardinality=Cardinality.ONE)


def _system(match: re.Match[str]) -> Made:
    key = re.sub(r"^(?:our|my|the)\s+", "", match["k"].strip().lower())
    if not key or key in {"it", "he", "she", "they", "this", "that", "i", "we", "which", "what"}:
        return None
    value = match["v"].strip()
    if re.match(_DAY, value, re.IGNORECASE) or re.match(_NO_SYSTEM, value):
        return None
    return Found(f"{key}_runs_on", cardinality=Cardinality.ONE)


def _employer(match: re.Match[str]) -> Made:
    value = match["v"]
    if _NOT_AN_EMPLOYER.match(value.strip()):
        return None
    place, _, post = value.partition(" as ")
    job = re.match(r"(?:an?\s+|the\s+)?" + _JOB, post, re.IGNORECASE)
    employer = Found("employer", place)
    if job is None:
        return employer
    return (employer, Found("occupation", job["v"], cardinality=Cardinality.ONE))


def _joined(match: re.Match[str]) -> Made:
    return _employer(match) if _proper(match["v"]) else None


def _left(match: re.Match[str]) -> Made:
    return Found("employer", ended=True) if _proper(match["v"]) else None


def _city(match: re.Match[str]) -> Made:
    value = re.sub(r" (?:with|from|near) .*$", "", match["v"].strip())
    bare = value.casefold()
    first = bare.split()[0]
    if any(c.isdigit() for c in value) and not re.search(r"\b(?:in|since) ", bare):
        return None
    if first in words.NOT_A_CITY_EN or re.match(r"\S*[a-z][A-Z]", value):
        return None
    if not _proper(value) and first not in words.CITIES_EN:
        article = re.match(r"(?:the|a|an) (?=[A-Z])", value)
        if article is None:
            return None
    return Found("city", value, cardinality=Cardinality.ONE)


def _occupation(match: re.Match[str]) -> Made:
    post = Found("occupation", match["v"], cardinality=Cardinality.ONE)
    return (post, Found("employer", match["e"])) if match["e"] else post


@lru_cache(maxsize=1)
def rules() -> Sequence[Rule]:
    """Patterns in order; the first that matches a clause is taken."""
    one, pref = Cardinality.ONE, FactKind.PREFERENCE
    asked: list[_Entry] = [
        # How to answer.
        (rf"\b(?:answer|reply|respond|write|talk|speak)(?: to me| me)?(?: (?:all |your )*(?:answers?|repl(?:y|ies)|responses?))?(?: only| always| back)? in {_LANG}\b", Found("answer_language", kind=pref, cardinality=one)),
        (rf"\b(?:i prefer|i'd prefer|i want|please use|use)\s+{_LANG}(?: answers?| replies| responses)?{_END}", Found("answer_language", kind=pref, cardinality=one)),
        (rf"\b(?:keep|make|give me|i (?:prefer|like|want|need)|i'd (?:prefer|like))\s+(?:your |the |all |my )?(?:answers?|repl(?:y|ies)|responses?|explanations?|it)\s+(?:to be\s+)?(?:very |really |as )?{_BRIEF}\b", Found("answer_length", kind=pref, cardinality=one)),
        (rf"\b(?:give me|i (?:prefer|like|want|need)|i'd (?:prefer|like)|please (?:give|write|use)|prefer)\s+(?:me )?(?:very |really )?{_BRIEF}(?:,? [a-z]+)? (?:answers?|repl(?:y|ies)|responses?|explanations?)", Found("answer_length", kind=pref, cardinality=one)),
        (rf"\b(?:be|answer|reply|respond)\s+(?:very |really |more |as )?{_BRIEF}(?:ly)?\b", Found("answer_length", kind=pref, cardinality=one)),
        (r"\b(?:answer|reply|respond) (?:briefly|concisely|shortly|succinctly)\b", Found("answer_length", "brief", kind=pref, cardinality=one)),
        (r"\bcall me (?P<v>[^\W\d_][\w'-]*(?: (?-i:[A-Z])[\w'-]*)?)(?=\s*(?:$|[.,;!?\n]|please\b|instead\b|from now on|for short))", _named("call_me")),
        (r"\b(?:i go by|people call me|everyone calls me|my friends call me)\s+(?P<v>[^\W\d_][\w'-]*)(?=\s*(?:$|[.,;!?\n]))", _named("call_me")),
        (rf"^(?:please |{_STANDING},? )*(?P<v>(?:{_STANDING},? )?(?:never|don['’]?t|do not|avoid|stop|skip|no)\b{_STYLE})$", _wish),
        (rf"^(?:please |and )*(?P<v>{_STANDING},? (?:please )?\w+{_STYLE})$", _wish),
        (rf"^(?:please )?(?P<v>(?:use|include|add|give|provide)(?: more| some| short)? {_MANNER})(?: in (?:your|the|all|every) (?:answers?|replies|responses?))?(?: please)?$", Found("instruction", kind=pref)),
    ]  # fmt: skip
    plain: list[_Entry] = [
        # Who the user is.
        (r"\b(?:my (?:full |first |real )?name is|my name['’]s|the name['’]s|i am called|i['’]m called)\s+(?P<v>[^\W\d_][\w'’-]*(?: [^\W\d_][\w'’.-]*){0,2}?)" + _END, _named("name")),
        (r"\b(?:my (?:full |first |real )?name is|my name['’]s|the name['’]s|i am called|i['’]m called)\s+(?P<v>(?-i:[A-Z])[\w'’-]*(?: (?-i:[A-Z])[\w'’.-]*){0,2})", _named("name")),
        (r"\bi(?:['’]m| am) (?P<v>\d{1,3}) years old\b", Found("age", cardinality=one)),
        (r"\bmy birthday is (?:on )?" + _V + _END, _birthday),
        (rf"\bi (?:have |just |recently |already )*(?:left|quit|resigned from)\s+{_V}(?: anymore)?{_END}", _left),
        (rf"\bi (?:no longer work (?:at|for)|don['’]?t work (?:at|for)|stopped working (?:at|for))\s+{_V}(?: anymore)?{_END}", Found("employer", ended=True)),
        (rf"\bi (?:no longer live|don['’]?t live) in\s+{_V}(?: anymore)?{_END}", Found("city", ended=True)),
        (rf"\bi(?:['’]ve| have)? {_ADV}(?:work|started(?: working)?|am working|got a job|took a job|started a job|moved to a job) ?(?:at|for)\s+{_V}{_END}", _employer),
        (rf"\bi(?: a|'|’)m {_ADV}employed (?:at|by|with)\s+{_V}{_END}", _employer),
        (rf"\bi['’]m {_ADV}working (?:at|for)\s+{_V}{_END}", _employer),
        (rf"\bi(?:['’]ve| have)? {_ADV}joined\s+(?!the\b|an?\b){_V}{_END}", _joined),
        (rf"\b(?:i|we)(?:['’]ve| have)? {_ADV}(?:live|moved(?: back)?|relocated|am based|are based|settled|am living)(?: from [^.,;!?\n]{{1,30}}?)? ?(?:in|to)\s+{_V}{_END}", _city),
        (rf"\bi['’]m {_ADV}(?:living|based) in\s+{_V}{_END}", _city),
        (r"\b(?:i come from|i['’]m from|i am from|i grew up in|i was born in)\s+(?:the )?(?P<v>(?-i:[A-Z])[\w'-]*(?:[ ,]+(?-i:[A-Z])[\w'-]*){0,3})", Found("hometown", cardinality=one)),
        (rf"\bi(?:['’]m| am| work as| became| have become)\s+{_ADV}(?:an?\s+|the\s+)?{_JOB}(?: (?:at|for) (?P<e>(?-i:[A-Z])[\w&'’-]*(?: (?-i:[A-Z])[\w&'’-]*){{0,3}}))?", _occupation),
        (rf"\b(?:(?:my job is|my occupation is|my profession is)\s+(?:being\s+)?(?:an?|the)\s+|i work as\s+(?:an?\s+)?){_V}{_END}", Found("occupation", cardinality=one)),
        # Likes and the rest.
        (rf"\bi(?:['’]m| am) (?:really )?(?:(?:not|no) (?:really )?(?:an? )?(?:big |huge )?fan of|not (?:really )?(?:into|fond of))\s+{_V}{_END}", Found("dislikes")),
        (rf"\bi (?:no longer|don['’]?t) (?:like|love|enjoy)\s+{_V}\s+anymore{_END}|\bi no longer (?:like|love|enjoy)\s+(?P<v2>[^.,;!?\n]{{1,60}}?){_END}", _no_longer_likes),
        (rf"\bi {_ADV}(?:don['’]?t (?:really )?like|dislike|hate|can['’]?t stand|do not like|detest|don['’]?t enjoy)\s+{_V}{_END}", Found("dislikes")),
        (rf"\bi {_ADV}(?:like|love|enjoy|adore|prefer|am a fan of|am into)\s+(?!to know|how |it\b|that\b|this\b|your |the idea)(?:to )?{_V}{_END}", Found("likes")),
        (rf"\bi(?:['’]m| am) {_ADV}(?:a (?:big |huge )?fan of|into|fond of)\s+{_V}{_END}", Found("likes")),
        (rf"\bi {_ADV}(?:can )?speak\s+(?:fluent |some |a little )?{_LANG}\b", Found("language")),
        (r"\b(?:i|we) (?:also )?(?:have|own|adopted|got) (?P<v>an? (?:[a-z]+ ){0,3}?(?:dog|cat|rabbit|hamster|parrot|turtle|puppy|kitten|horse|fish)(?: (?:named|called) [A-Z]\w+)?)(?=\s*(?:$|[.,;!?\n]|(?:and|who|that|which|at home|too|as well|with|since|for|from|but|now)\b))", Found("pet")),
        (rf"\bi(?:['’]m| am| have been|['’]ve been)? {_ADV}(?:learning|studying|started learning|taking lessons in)\s+(?:to )?{_V}{_END}", _learning),
        (rf"^(?:so |and |ok(?:ay)?,? |well,? )?(?P<k>(?:[\w-]+ ){{0,3}}?[\w-]+?)(?:'s)? (?:now )?(?:runs on|is running on|run on|is deployed on|is hosted on|has moved to|was upgraded to|is now on|moved to)\s+{_V}{_END}", _system),
        (rf"\bwe(?:['’]ve| have)? {_ADV}(?:upgraded|migrated|moved|switched|ported) (?P<k>(?:[\w-]+ ){{0,3}}?[\w-]+?) (?:from [^.,;!?\n]{{1,30}}? )?(?:on)?to\s+{_V}{_END}", _system),
        (rf"\b(?:i|we) (?:no longer|don['’]?t|stopped) (?:use|using)\s+{_V}(?: anymore)?{_END}", Found("uses", ended=True)),
        (rf"\b(?:i|we)(?:['’]ve| have)? {_ADV}(?:decided (?:on|to use|to go with|to|for)|settled on|went with|chose|picked|will go with|are going with)\s+{_V}{_END}", Found("decision")),
        (rf"^(?:ok(?:ay)?,? |so |then |alright,? |great,? )*let'?s (?:go with|use|pick|choose|take)\s+{_V}(?: then| instead)?{_END}", Found("decision")),
        (rf"\b(?:i|we) {_ADV}(?:use|switched to|am using|are using|migrated to)\s+{_V}{_END}", Found("uses")),
        (rf"\bmy (?P<k>(?:favou?rite )?[a-z]+(?: [a-z]+)?(?:'s name)?) (?P<verb>is now|are now|is called|is named|was named|is|are)\s+(?!not |very |really |so |too |a bit |that |to |how |what |why |going |in |on |at )(?:called |named )?{_V}{_END}", _thing),
    ]  # fmt: skip
    greeting: list[_Entry] = [
        (r"^(?:i['’]?m|i am|this is|it['’]s)\s+(?P<v>(?-i:[A-Z])[\w'’-]*(?: (?-i:[A-Z])[\w'’.-]*)?)(?=\s*(?:$|[.,;!?\n]|and\b|from\b))", _named("name")),
    ]  # fmt: skip
    return (
        *(Rule(re.compile(p, re.IGNORECASE), make, lead=_ASKING) for p, make in asked),
        *(Rule(re.compile(p, re.IGNORECASE), make, greeted=True) for p, make in greeting),
        *(Rule(re.compile(p, re.IGNORECASE), make) for p, make in plain),
    )


def _wish(match: re.Match[str]) -> Made:
    said = match["v"]
    manner = re.sub(
        rf"\b(?:{_STANDING}|please|answer|reply|respond|my|the|all|every|questions?|me|to|your|answers)\b|\W",
        "",
        said,
        flags=re.IGNORECASE,
    )
    if not manner or _POINTS_AWAY_EN.search(said):
        return None
    return Found("instruction", kind=FactKind.PREFERENCE)


def _no_longer_likes(match: re.Match[str]) -> Made:
    return Found("likes", match["v"] or match["v2"] or "", ended=True)
