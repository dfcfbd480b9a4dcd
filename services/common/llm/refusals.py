"""What a provider's 400 complains about, and whether it is about the request or about a value.

Providers agree on no form: OpenAI names the parameter (`param`) and a `code`, others write a
sentence. What cannot be told apart counts as a value, so that nothing is learnt from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_OPTIONAL: Final = (
    "response_format",
    "tools",
    "temperature",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
)
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "response_format": ("response_format", "json_schema", "json_object"),
    "tools": ("tool", "function call"),
}
_OWN: Final = frozenset({"tools", "stream_options"})
"""Parts whose value is always a service's own: who refuses it refuses it from everybody."""
# A 400 about these is about the messages, not about an optional part.
_ABOUT_MESSAGES: Final = ("context", "too long", "length", "policy")
# "Only the default (1) value is supported" is how a parameter that cannot be set is refused.
_UNSETTABLE: Final = re.compile(r"only the default")
_VALUE: Final = re.compile(
    r"\b(invalid (schema|value)|unsupported[ _]value|in context|must be|should be|between|"
    r"out of|range|above|below|exceed\w*|"
    r"(greater|larger|higher|more|less|smaller|lower|fewer) than|"
    r"at (most|least)|maximum|minimum|too (large|big|high|small|low|long|many))\b|"
    r"取值|范围|超过|大于|小于|不能超|最大|最小"
)
_CAPABILITY: Final = re.compile(
    r"(unsupported|unknown|unrecognized|unrecognised|unexpected)[ _](request[ _])?"
    r"(param\w*|argument\w*|keyword\w*|field\w*|key\w*|option\w*|property|name)|"
    r"(not|n't) (be )?(support\w*|permitted|allowed|available|implemented|enabled)|"
    r"unavailable|extra (inputs|fields)|extra_forbidden|不支持"
)


@dataclass(frozen=True)
class Refusal:
    """The optional part that was refused. `lasting`: the provider does not know it at all, so that
    no value of it will do; else it may have been this one value.
    """

    part: str
    lasting: bool


def refusal(error: Exception, sent: Mapping[str, Any]) -> Refusal | None:
    """The part of `sent` that the 400 `error` complains about; None where it is about the rest.

    A 400 that names nothing is put down to the first optional part: a plain request is tried last.
    """
    said = str(error).lower()
    parts = [part for part in _OPTIONAL if part in sent]
    named = _named(getattr(error, "param", None), said, parts)
    if named is not None:
        return Refusal(named, named in _OWN or _lasting(said))
    if not parts or any(word in said for word in _ABOUT_MESSAGES):
        return None
    return Refusal(parts[0], lasting=False)


def _named(param: object, said: str, parts: list[str]) -> str | None:
    # A path: the part, then what is wrong inside it.
    first = re.split(r"[.\[]", param)[0] if isinstance(param, str) else ""
    if first in parts:
        return first
    return next(
        (part for part in parts if any(word in said for word in _NAMES.get(part, (part,)))), None
    )


def _lasting(said: str) -> bool:
    if _UNSETTABLE.search(said):
        return True
    return not _VALUE.search(said) and _CAPABILITY.search(said) is not None
