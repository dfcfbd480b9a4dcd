"""Where a model's files are, and the hash that is its revision."""

from __future__ import annotations

import hashlib
from pathlib import Path

from services.embedder.model import ModelUnavailable

_CHUNK = 1 << 20
_IGNORED = {".git", ".cache", "__pycache__"}


def revision_of(path: str, *recipe: str) -> str:
    """16 hexadecimal digits over the contents of every file of a local folder and over `recipe`
    (whatever else changes the vectors: prompts, precision, limits).

    For a hub id, whose files lie in a snapshot folder named by its commit, the commit stands for
    them.
    """
    digest = hashlib.sha256("\x00".join(recipe).encode())
    folder = Path(path)
    if not folder.is_dir():
        digest.update(f"{path}@{_commit(path)}".encode())
        return digest.hexdigest()[:16]
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or _IGNORED & set(file.relative_to(folder).parts):
            continue
        digest.update(file.relative_to(folder).as_posix().encode())
        with file.open("rb") as content:
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()[:16]


def _commit(hub_id: str) -> str:
    from huggingface_hub import try_to_load_from_cache

    for name in ("config.json", "modules.json"):
        found = try_to_load_from_cache(hub_id, name)
        if isinstance(found, str):
            return Path(found).parent.name
    raise ModelUnavailable(f"the model {hub_id!r} is neither a folder nor in the local hub cache")
