"""Citations in an answer: found, checked against what was given, dropped where they point to
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb

# Models write [E1], [E1, E2], [E1][E2], 【E1】 and [e1].
_MARK = re.compile(r"[\[【]\s*([Ee]\d{1,4}(?:\s*[,，、;；]\s*[Ee]\d{1,4})*)\s*[\]】]")
_CHECKED = re.compile(r"\s?\[E\d{1,4}\]")
_ID = re.compile(r"[Ee](\d{1,4})")


@dataclass(frozen=True)
class Checked:
    """An answer whose citations all point to evidence. `dropped` are the ids that did not."""

    text: str
    citations: tuple[pb.Citation, ...]
    dropped: tuple[str, ...]


def check(text: str, evidence: Sequence[pb.Evidence]) -> Checked:
    """Normalise citations to [E1][E2] and remove those that were not given."""
    known = {item.evidence_id: item for item in evidence}
    out: list[str] = []
    length = 0
    position = 0
    citations: list[pb.Citation] = []
    dropped: list[str] = []

    def push(piece: str) -> None:
        nonlocal length
        out.append(piece)
        length += len(piece)

    for match in _MARK.finditer(text):
        before = text[position : match.start()]
        position = match.end()
        ids = list(dict.fromkeys(f"E{int(number)}" for number in _ID.findall(match.group(1))))
        kept = [one for one in ids if one in known]
        dropped += [one for one in ids if one not in known]
        # A removed mark takes the space before it along.
        push(before if kept else before.rstrip(" "))
        for one in kept:
            citations.append(
                pb.Citation(
                    evidence_id=one,
                    evidence=known[one],
                    start=length,
                    end=length + len(one) + 2,
                )
            )
            push(f"[{one}]")
    push(text[position:])
    return Checked("".join(out), tuple(citations), tuple(dict.fromkeys(dropped)))


def unmarked(text: str) -> str:
    """A checked answer without its marks, for whatever outlives its turn: their ids mean nothing
    there, or something else.
    """
    return _CHECKED.sub("", text).strip() or text
