"""What the model calls of one answer have cost, also of calls that were left or cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from services.common.llm import ModelError
from services.orchestrator import tokens
from services.orchestrator.reasoner.model import Done, ModelRequest

_NOT_BEGUN = frozenset({"refused", "rate_limited", "unavailable"})
"""Kinds of a ModelError after which nobody is charged, unless something was heard before."""


@dataclass
class Spent:
    """Tokens so far. `estimated` where a provider did not count some of them, or did not get to."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False

    @contextmanager
    def call(self, request: ModelRequest) -> Iterator[Call]:
        """Account for one call however it ends: by what its Done counts, else by an estimate."""
        call = Call()
        charged = True
        try:
            yield call
        except ModelError as error:
            charged = error.kind not in _NOT_BEGUN or bool(call.heard)
            raise
        finally:
            if call.done is not None and call.done.prompt_tokens is not None:
                self.prompt_tokens += call.done.prompt_tokens
                self.completion_tokens += call.done.completion_tokens or 0
            elif charged:
                self.prompt_tokens += sum(tokens.estimate(m.text) for m in request.messages)
                self.completion_tokens += tokens.estimate(call.heard)
                self.estimated = True


@dataclass
class Call:
    """What one call has said: everything of its text and thinking, and its end."""

    heard: str = ""
    done: Done | None = None
