"""Optional parts: what brings one of them."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that installs an extra of pyproject.toml, in the folder of the clone.

    Nianlun runs from a clone (or from images, which hold what they need): a name for a package
    index would point at nothing.
    """
    return f".venv/bin/pip install -e '.[{extra}]'"
