"""The seams to the other services, as the steps see them. Every method raises DomainError."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.domain import (
    LoadedMemory,
    Readings,
    Recalled,
    Retrieved,
    TurnInput,
)


@dataclass(frozen=True)
class TurnToSave:
    """One exchange for memory. `request_id` makes saving it twice harmless."""

    request_id: str
    user_id: str
    session_id: str
    user_text: str
    assistant_text: str
    event_time: datetime
    time_zone: str
    run_id: str


@dataclass(frozen=True)
class DocumentText:
    """The beginning of a document's text. `total_chars` counts all of it."""

    collection_id: str
    document_id: str
    title: str
    text: str
    total_chars: int


class Knowledge(Protocol):
    """Search over the tenant's documents."""

    async def search(
        self, turn: TurnInput, query: str, top_k: int, *, gated: bool = True
    ) -> Retrieved:
        """The best passages for `query` inside the turn's scope; ungated ones may
        be far from it.
        """

    async def document(self, turn: TurnInput, document_id: str, max_chars: int) -> DocumentText:
        """A document's title and the beginning of its text; NOT_FOUND outside the turn's scope."""

    async def scope_chars(self, turn: TurnInput) -> int:
        """Characters of all documents in the turn's scope; 0 where there are too many to count."""

    async def open(
        self, turn: TurnInput, document_id: str, chunk_id: str, max_chars: int
    ) -> pb.Evidence:
        """The section around a chunk, or the document's beginning without one; NOT_FOUND outside
        the turn's scope.
        """


class Memory(Protocol):
    """What the user said, and what is known of them."""

    async def load(
        self, turn: TurnInput, budget_tokens: int, exclude_session: bool
    ) -> LoadedMemory:
        """What is known for this message, rendered by trust."""

    async def recall(self, user_id: str, query: str, top_k: int) -> Recalled:
        """Notes and earlier messages about `query`, best first."""

    async def save(self, turn: TurnToSave) -> str:
        """Append the exchange; returns its position token."""

    async def readings(self, user_id: str, document_id: str, text: str) -> Readings:
        """Earlier readings like this document."""

    async def record_reading(
        self, request_id: str, user_id: str, document_id: str, title: str, summary: str
    ) -> None:
        """Note that the user read a document."""

    async def reading_feedback(
        self, request_id: str, user_id: str, document_id: str, useful: bool
    ) -> None:
        """Change a reading's weight."""
