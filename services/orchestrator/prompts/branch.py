"""What is true of the prompt being rendered. A sentence is rendered only where its branch says
so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.orchestrator.domain import Language

Lines = Callable[["Branch"], list[str]]


@dataclass(frozen=True)
class Branch:
    """The facts a prompt's sentences depend on.

    `first_reading` is true only where the readings are known and there is no earlier one; unknown
    readings are neither a first reading nor a later one.
    """

    language: Language
    preferences: bool = False
    reference_memory: bool = False
    evidence: bool = False
    selection: bool = False
    document_text: bool = False
    history: bool = False
    readings: bool = False
    first_reading: bool = False
    tools: bool = False
    schema: str = ""
    title: str = ""
    instructions: str = ""

    def say(self, zh: str, en: str) -> str:
        """The sentence in the branch's language."""
        return zh if self.language == "zh" else en


@dataclass(frozen=True)
class IntentPrompt:
    """The three parts an intent adds: who the model is, what to do, in which form."""

    role: Lines
    task: Lines
    form: Lines
