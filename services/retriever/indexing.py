"""From chunks to what the legs search: terms, packed postings, hashes. Pure and CPU-bound."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from services.retriever.chunking import Chunk, chunk, content_hash, prefix
from services.retriever.domain import IndexedText, ReadDocument, Upload
from services.retriever.reading import reader
from services.retriever.reading.blocks import Source
from services.retriever.reading.sanitize import sanitize
from services.search import tokenize
from services.search.language import normalise
from services.search.postings import length_of

_NAMESPACE: Final = uuid.UUID("0b9d0a4e-6f1c-5d7e-9a59-6e69616e6c75")
_MAX_TITLE: Final = 500
_NOT_LETTERS: Final = re.compile(r"[\W_]+")
_MAX_U16: Final = 65_535


def read_upload(upload: Upload) -> tuple[ReadDocument, dict[bytes, str]]:
    """Reads and cuts one document: it, and the indexed texts of its chunks by content hash.

    Blocking. Raises ReadError when it cannot be read.
    """
    parsed = reader.read(Source(upload.text, upload.data, upload.given_format, upload.uri))
    named = upload.title or parsed.title or reader.file_name(upload.uri)
    title = sanitize(named)[0].strip()[:_MAX_TITLE]
    chunks = chunk(parsed.text, parsed.blocks)
    # The id is no title: it says nothing, and equal texts under many ids must stay equal.
    prefix_title = "" if title == upload.document_id else title
    texts = [c.indexed_text(prefix_title) for c in chunks]
    hashes = tuple(content_hash(t) for t in texts)
    changes = list(upload.changes)
    if parsed.changes:
        changes.append({"field": "content", "changes": list(parsed.changes)})
    document = ReadDocument(
        upload=upload,
        format=parsed.format,
        title=title or upload.document_id,
        text=parsed.text,
        changes=changes,
        chunks=tuple(chunks),
        hashes=hashes,
    )
    return document, dict(zip(hashes, texts, strict=True))


def indexed_passage(title: str, document_id: str, section: Sequence[str], text: str) -> str:
    """The indexed text of a stored chunk, as it was when it was written."""
    return prefix("" if title == document_id else title, section) + text


def passage_key(passage: str) -> bytes:
    """Names a passage whatever its case, width, spaces and signs: near-duplicates share it."""
    letters = _NOT_LETTERS.sub("", normalise(passage).casefold())
    return content_hash(letters or passage)


def index_text(text: str, passage: str) -> IndexedText:
    """Terms and hashes of one indexed text, whose passage is `passage`."""
    terms = Counter(tokenize(text))
    return IndexedText(
        content_hash=content_hash(text),
        passage_hash=passage_key(passage),
        text=text,
        terms=terms,
        length=length_of(terms.total()),
    )


def chunk_uuid(collection_id: str, document_id: str, ordinal: int, part: Chunk) -> str:
    """A chunk's id: the same for the same text at the same place."""
    name = "\x1f".join((collection_id, document_id, str(ordinal), part.text))
    return str(uuid.uuid5(_NAMESPACE, name))


def pack_segment(first_item: int, texts: Sequence[IndexedText]) -> list[tuple[str, bytes]]:
    """Postings of items numbered from `first_item` on: (term, packed entries), sorted by term.

    Blocking. The entries are as `postings.pack` makes them, for all terms at once.
    """
    numbers: dict[str, int] = {}
    terms: list[int] = []
    frequencies: list[int] = []
    for text in texts:
        terms.extend(numbers.setdefault(t, len(numbers)) for t in text.terms)
        frequencies.extend(text.terms.values())
    sizes = [len(text.terms) for text in texts]
    term = np.asarray(terms, np.int64)
    order = np.argsort(term, kind="stable")  # within a term, items keep their order
    items = np.repeat(np.arange(first_item, first_item + len(texts)), sizes).astype("<u4")[order]
    tfs = np.minimum(np.asarray(frequencies, np.int64), _MAX_U16).astype("<u2")[order]
    lengths = np.repeat(np.minimum([t.length for t in texts], _MAX_U16), sizes).astype("<u2")[order]
    ends = np.cumsum(np.bincount(term, minlength=len(numbers))).tolist()
    starts = [0, *ends]
    return [
        (name, b"".join(c[starts[n] : ends[n]].tobytes() for c in (items, tfs, lengths)))
        for name, n in sorted(numbers.items())
    ]
