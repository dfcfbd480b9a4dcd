"""A rule, and what it makes of a match."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from services.memory.domain import Cardinality, FactKind


@dataclass(frozen=True)
class Found:
    """An attribute and its value; an empty `value` takes the group `v` of the match."""

    attribute: str
    value: str = ""
    kind: FactKind = FactKind.FACT
    cardinality: Cardinality | None = None
    ended: bool = False


Made = Found | tuple[Found, ...] | None


@dataclass(frozen=True)
class Rule:
    """A pattern and what it makes of a match.

    `lead`: what may stand before the match in its clause, where it is not the speaker's "I" that
    the match begins with. `greeted`: only after a greeting. `subjectless`: the subject is that of
    the sentence's first clause, which must be the speaker; `continues`: and there must be such
    a clause.
    """

    pattern: re.Pattern[str]
    make: Found | Callable[[re.Match[str]], Made]
    lead: re.Pattern[str] | None = None
    greeted: bool = False
    subjectless: bool = False
    continues: bool = False
