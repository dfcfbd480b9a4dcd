"""Office formats and e-books, through `markitdown` where the extra `ingest` is installed."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import PurePosixPath
from typing import Any, Final

from services.common import extras
from services.retriever.reading.blocks import ReadError, Unreadable, uri_path

_MAX_UNPACKED: Final = 128 * 1024 * 1024
_HINT: Final = f"this format needs the extra `ingest`: {extras.install('ingest')} in the clone"


def to_markdown(data: bytes, uri: str) -> str:
    """The document as Markdown.

    Raises ReadError NO_CONVERTER without the extra, BROKEN for what the converter cannot read.
    """
    try:
        import markitdown
    except ImportError as error:
        raise ReadError(Unreadable.NO_CONVERTER, _HINT) from error
    suffix = PurePosixPath(uri_path(uri)).suffix.lower() or None
    _check_unpacked(data)
    try:
        # Plugins and network access stay off: the bytes are all that is read.
        result = markitdown.MarkItDown(enable_plugins=False).convert_stream(
            io.BytesIO(data), file_extension=suffix
        )
    except markitdown.FileConversionException as error:
        if _lacks_parts(error, markitdown.MissingDependencyException):
            raise ReadError(Unreadable.NO_CONVERTER, _HINT) from error
        raise ReadError(Unreadable.BROKEN, "the converter could not read this document") from error
    except markitdown.MarkItDownException as error:
        raise ReadError(Unreadable.BROKEN, "the converter could not read this document") from error
    return str(result.text_content)


def _check_unpacked(data: bytes) -> None:
    """Refuses an archive (Office files and e-books are some) that would fill the memory. What its
    directory says of a part's size is what is unpacked of it at most."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(part.file_size for part in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error):
        return  # no archive, or a broken one: the converter names it
    if size > _MAX_UNPACKED:
        raise ReadError(Unreadable.TOO_LARGE, f"more than {_MAX_UNPACKED:,} bytes when unpacked")


def _lacks_parts(error: Any, missing: type[Exception]) -> bool:
    """Whether every converter that knows the format lacks the package that it stands on."""
    kinds = [attempt.exc_info[0] for attempt in error.attempts or () if attempt.exc_info]
    return bool(kinds) and all(issubclass(kind, missing) for kind in kinds)
