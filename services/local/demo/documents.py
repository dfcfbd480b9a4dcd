"""The demo's knowledge: this project's own documentation, in Chinese and English."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nianlun import Client, document
from nianlun.common.v1 import common_pb2
from nianlun.errors import NotFoundError
from nianlun.retriever.v1 import retriever_pb2 as retriever

COLLECTION = "nianlun-docs"
_HEADING = re.compile(r"^#\s+(.+)$", re.MULTILINE)
_HASH = "sha256"
_BATCH_CHARS = 20_000
_INGEST_S = 150.0

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Source:
    """One file of the documentation. ``document_id`` is its path in the repository."""

    document_id: str
    title: str
    text: str

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the text in hex; tells whether the stored document is current."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Ingested:
    """What one ingestion did; sizes in characters."""

    documents: int
    chars: int
    sent: int
    removed: int
    chunks: int


def read_sources(repository: Path) -> list[Source]:
    """README files and everything under docs/, in a stable order."""
    paths = sorted(repository.glob("README*.md")) + sorted((repository / "docs").rglob("*.md"))
    sources = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        heading = _HEADING.search(text)
        title = heading.group(1).strip() if heading else path.stem
        sources.append(Source(path.relative_to(repository).as_posix(), title, text))
    return sources


def ingest(client: Client, sources: list[Source], progress: Progress) -> Ingested:
    """Bring the collection up to date: send what changed, remove what is gone, wait until READY.

    ``progress`` is called with characters done and characters to do.
    """
    _ensure_collection(client)
    stored = _stored(client)
    changed = [each for each in sources if stored.get(each.document_id) != each.fingerprint]
    gone = sorted(set(stored) - {each.document_id for each in sources})
    if gone:
        client.delete_documents(COLLECTION, gone, allow_missing=True)
    total = sum(len(each.text) for each in changed)
    before = 0
    for batch in _batches(changed):
        chars = sum(len(each.text) for each in batch)

        def report(job: common_pb2.Job, before: int = before, chars: int = chars) -> None:
            share = job.done / job.total if job.total else 0.0
            progress(before + int(chars * min(share, 1.0)), total)

        answer = client.upsert_documents(COLLECTION, [_input(each) for each in batch])
        client.wait_job(answer, timeout_s=_INGEST_S, progress=report)
        before += chars
        progress(before, total)
    collection = client.get_collection(COLLECTION).collection
    return Ingested(
        documents=len(sources),
        chars=sum(len(each.text) for each in sources),
        sent=len(changed),
        removed=len(gone),
        chunks=collection.chunk_count,
    )


def _ensure_collection(client: Client) -> None:
    try:
        client.get_collection(COLLECTION)
    except NotFoundError:
        client.create_collection(COLLECTION, display_name="Nianlun documentation")


def _stored(client: Client) -> dict[str, str]:
    """Fingerprints of the documents that are there and complete."""
    found: dict[str, str] = {}
    token = ""
    while True:
        page = client.list_documents(COLLECTION, page_size=100, page_token=token)
        for each in page.documents:
            ready = each.state == retriever.DOCUMENT_STATE_READY and not each.pending_vectors
            found[each.document_id] = each.metadata[_HASH].string_value if ready else ""
        token = page.next_page_token
        if not token:
            return found


def _batches(sources: list[Source]) -> list[list[Source]]:
    """Groups of some 20,000 characters, so that progress is seen and no request is too large."""
    batches: list[list[Source]] = []
    size = _BATCH_CHARS
    for each in sources:
        if size + len(each.text) > _BATCH_CHARS:
            batches.append([])
            size = 0
        batches[-1].append(each)
        size += len(each.text)
    return batches


def _input(source: Source) -> retriever.DocumentInput:
    return document(
        source.document_id,
        source.text,
        title=source.title,
        content_type=retriever.CONTENT_TYPE_MARKDOWN,
        uri=source.document_id,
        metadata={_HASH: source.fingerprint, "language": _language(source.text)},
    )


def _language(text: str) -> str:
    han = sum("\u4e00" <= character <= "\u9fff" for character in text)
    return "zh" if han * 5 > len(text) else "en"
