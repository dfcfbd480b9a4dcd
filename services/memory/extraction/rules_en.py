# ruff: noqa: E501 - tables read better with one entry a line
"""English statements that rules understand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from services.memory.domain import Cardinality, FactKind
from services.memory.extraction.found import Found

_V: Final = r"(?P<v>[^.,;!?\n]{1,60}?(?:\.\d[^,;!?\n]{0,20}?)?)"
_END: Final = r"(?=\s*(?:$|[.,;!?\n]|\bbecause\b|\bsince\b|\bbut\b|\band (?:i|my|we)\b))"
_ADV: Final = r"(?:(?:really|also|still|now|currently|just|always|absolutely|truly|actually|so|very|much|definitely|recently|already|finally|personally|usually|mostly)\s+)*"
_JOB: Final = (
    r"(?P<v>(?:[a-z-]+ ){0,4}?(?:engineer|developer|programmer|designer|teacher|doctor|nurse|lawyer|student|writer|artist"
    r"|chef|driver|manager|director|professor|researcher|scientist|journalist|editor|translator|consultant|founder|analyst"
    r"|architect|accountant|photographer|pilot|farmer|electrician|carpenter|musician|barista|freelancer|librarian|pharmacist"
    r"|mechanic|dentist|veterinarian|salesperson|marketer|administrator|technician|plumber|baker|painter|actor|entrepreneur))"
)
_LANG: Final = r"(?P<v>English|Chinese|Mandarin|Cantonese|Japanese|French|German|Spanish|Korean|Russian|Italian|Portuguese|Arabic|Hindi|Dutch)"
_BRIEF: Final = r"(?P<v>short|brief|concise|terse|to the point|succinct|compact|detailed|long|thorough|in depth|verbose|one sentence)"


def _thing(match: re.Match[str]) -> Found | None:
    key = match["k"].strip().lower()
    if key in {
        "question",
        "point",
        "idea",
        "guess",
        "understanding",
        "problem",
        "goal",
        "plan",
        "concern",
        "bad",
        "apologies",
        "mistake",
        "issue",
        "view",
        "opinion",
    }:
        return None
    key = re.sub(r"^(?:favou?rite) ", "favorite ", key)
    return Found(key, cardinality=Cardinality.ONE)


def _system(match: re.Match[str]) -> Found | None:
    key = re.sub(r"^(?:our|my|the)\s+", "", match["k"].strip().lower())
    if not key or key in {"it", "he", "she", "they", "this", "that", "i", "we", "which", "what"}:
        return None
    return Found(f"{key}_runs_on", cardinality=Cardinality.ONE)


@lru_cache(maxsize=1)
def rules() -> Sequence[tuple[re.Pattern[str], object]]:
    """Patterns in order; the first that matches a clause is taken."""
    one, pref = Cardinality.ONE, FactKind.PREFERENCE
    table: list[tuple[str, object]] = [
        # How to answer.
        (rf"\b(?:answer|reply|respond|write|talk|speak)(?: to me)?(?: only| always| back)? in {_LANG}\b", Found("answer_language", kind=pref, cardinality=one)),
        (rf"\b(?:i prefer|i'd prefer|i want|please use|use)\s+{_LANG}(?: answers?| replies| responses)?{_END}", Found("answer_language", kind=pref, cardinality=one)),
        (rf"\b(?:keep|make|give me|i (?:prefer|like|want|need)|i'd (?:prefer|like))\s+(?:your |the |all |my )?(?:answers?|repl(?:y|ies)|responses?|explanations?|it)\s+(?:to be\s+)?(?:very |really |as )?{_BRIEF}\b", Found("answer_length", kind=pref, cardinality=one)),
        (rf"\b(?:give me|i (?:prefer|like|want|need)|i'd (?:prefer|like)|please (?:give|write|use)|prefer)\s+(?:me )?(?:very |really )?{_BRIEF}(?:,? [a-z]+)? (?:answers?|repl(?:y|ies)|responses?|explanations?)", Found("answer_length", kind=pref, cardinality=one)),
        (rf"\b(?:be|answer|reply|respond)\s+(?:very |really |more |as )?{_BRIEF}(?:ly)?\b", Found("answer_length", kind=pref, cardinality=one)),
        (r"\b(?:answer|reply|respond) (?:briefly|concisely|shortly|succinctly)\b", Found("answer_length", "brief", kind=pref, cardinality=one)),
        (r"\b(?:please )?call me (?P<v>[A-Z][\w'-]*(?: [A-Z][\w'-]*)?)", Found("call_me", kind=pref, cardinality=one)),
        (r"^(?:please |from now on,? |always |in future,? )*(?P<v>(?:(?:please|always|never|don'?t|do not|avoid|stop|use|include)\b)[^.,;!?\n]{0,40}\b(?:answers?|repl(?:y|ies)|responses?|bullet points?|tables?|emojis?|code examples?|examples?|links?|citations?|sources|markdown|headings?|apologi[sz]\w*|jargon|small talk|formal language)\b[^.,;!?\n]{0,30})$", Found("instruction", kind=pref)),
        # Who the user is.
        (r"\b(?:my name is|my name's|i am called|i'm called)\s+(?P<v>[A-Z][\w'-]*(?: [A-Z][\w'-]*){0,2})", Found("name", cardinality=one)),
        (r"\bi(?:'m| am) (?P<v>\d{1,3}) years old\b", Found("age", cardinality=one)),
        (r"\bmy birthday is (?:on )?" + _V + _END, Found("birthday", cardinality=one)),
        (rf"\bi (?:have )?(?:left|quit|resigned from|no longer work (?:at|for)|don'?t work (?:at|for)|stopped working (?:at|for))\s+{_V}(?: anymore)?{_END}", Found("employer", ended=True)),
        (rf"\bi (?:no longer live|don'?t live) in\s+{_V}(?: anymore)?{_END}", Found("city", ended=True)),
        (rf"\bi(?:'ve| have)? {_ADV}(?:work|started(?: working)?|am working|got a job|took a job|joined|started a job|am employed|moved to a job) ?(?:at|for|with|by)\s+{_V}{_END}", Found("employer")),
        (rf"\bi'm {_ADV}(?:working|employed) (?:at|for|with|by)\s+{_V}{_END}", Found("employer")),
        (rf"\bi(?:'ve| have)? {_ADV}(?:joined)\s+{_V}(?: as .*)?{_END}", Found("employer")),
        (rf"\b(?:i|we)(?:'ve| have)? {_ADV}(?:live|moved(?: back)?|relocated|am based|are based|settled|am living) ?(?:in|to)\s+{_V}{_END}", Found("city", cardinality=one)),
        (rf"\bi'm {_ADV}(?:living|based) in\s+{_V}{_END}", Found("city", cardinality=one)),
        (r"\b(?:i come from|i'm from|i am from|i grew up in|i was born in)\s+(?!now)(?P<v>[A-Z][\w'-]*(?:[ ,]+[A-Z][\w'-]*){0,3})", Found("hometown", cardinality=one)),
        (rf"\bi(?:'m| am| work as| became| have become)\s+{_ADV}(?:an?\s+|the\s+)?{_JOB}\b", Found("occupation", cardinality=one)),
        (rf"\b(?:my job is|my occupation is|i work as)\s+(?:an?\s+)?{_V}{_END}", Found("occupation", cardinality=one)),
        # Likes and the rest.
        (rf"\bi (?:no longer|don'?t) (?:like|love|enjoy)\s+{_V}\s+anymore{_END}|\bi no longer (?:like|love|enjoy)\s+(?P<v2>[^.,;!?\n]{{1,60}}?){_END}", _no_longer_likes),
        (rf"\bi {_ADV}(?:don'?t (?:really )?like|dislike|hate|can'?t stand|do not like|detest|don'?t enjoy)\s+{_V}{_END}", Found("dislikes")),
        (rf"\bi {_ADV}(?:like|love|enjoy|adore|prefer|am a fan of|am into)\s+(?!to know|how |it\b|that\b|this\b|your |the idea)(?:to )?{_V}{_END}", Found("likes")),
        (rf"\bi'm {_ADV}(?:a (?:big |huge )?fan of|into|fond of)\s+{_V}{_END}", Found("likes")),
        (rf"\bi {_ADV}(?:can )?speak\s+(?:fluent |some |a little )?{_LANG}\b", Found("language")),
        (r"\b(?:i|we) (?:also )?(?:have|own|adopted|got) (?P<v>an? (?:[a-z]+ ){0,3}?(?:dog|cat|rabbit|hamster|parrot|turtle|puppy|kitten|horse|fish)(?: (?:named|called) [A-Z]\w+)?)", Found("pet")),
        (rf"\bi(?:'m| am| have been|'ve been)? {_ADV}(?:learning|studying|started learning|taking lessons in)\s+(?:to )?{_V}{_END}", Found("learning")),
        (rf"^(?:so |and |ok(?:ay)?,? |well,? )?(?P<k>(?:[\w-]+ ){{0,3}}?[\w-]+?)(?:'s)? (?:now )?(?:runs on|is running on|run on|is deployed on|is hosted on|has moved to|was upgraded to|is now on|moved to)\s+{_V}{_END}", _system),
        (rf"\b(?:i|we) (?:no longer|don'?t|stopped) (?:use|using)\s+{_V}(?: anymore)?{_END}", Found("uses", ended=True)),
        (rf"\b(?:i|we)(?:'ve| have)? {_ADV}(?:decided (?:on|to use|to go with|to|for)|settled on|went with|chose|picked|will go with|are going with)\s+{_V}{_END}", Found("decision")),
        (rf"^(?:ok(?:ay)?,? |so |then |alright,? |great,? )*let'?s (?:go with|use|pick|choose|take)\s+{_V}{_END}", Found("decision")),
        (rf"\b(?:i|we) {_ADV}(?:use|switched to|am using|are using|migrated to)\s+{_V}{_END}", Found("uses")),
        (rf"\bmy (?P<k>(?:favou?rite )?[a-z]+(?: [a-z]+)?(?:'s name)?) (?:is now|are now|is called|is named|is|are)\s+(?!not |very |really |so |too |a bit |that |to |how |what |why |going |in |on |at )(?:called |named )?{_V}{_END}", _thing),
    ]  # fmt: skip
    return tuple((re.compile(pattern, re.IGNORECASE), make) for pattern, make in table)


def _no_longer_likes(match: re.Match[str]) -> Found | None:
    return Found("likes", match["v"] or match["v2"] or "", ended=True)
