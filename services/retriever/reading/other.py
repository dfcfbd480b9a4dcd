"""Office formats and e-books, through `markitdown` where that extra is installed."""

from __future__ import annotations

import io
from pathlib import PurePosixPath

from services.retriever.reading.blocks import ReadError, Unreadable, uri_path


def to_markdown(data: bytes, uri: str) -> str:
    """The document as Markdown. Raises ReadError without the extra and for what it cannot read."""
    try:
        import markitdown
    except ImportError as error:
        raise ReadError(
            Unreadable.NO_CONVERTER,
            "this format needs the extra: pip install 'nianlun[ingest]'",
        ) from error
    suffix = PurePosixPath(uri_path(uri)).suffix.lower() or None
    try:
        # Plugins and network access stay off: the bytes are all that is read.
        result = markitdown.MarkItDown(enable_plugins=False).convert_stream(
            io.BytesIO(data), file_extension=suffix
        )
    except markitdown.MarkItDownException as error:
        raise ReadError(Unreadable.BROKEN, "the converter could not read this document") from error
    return str(result.text_content)
