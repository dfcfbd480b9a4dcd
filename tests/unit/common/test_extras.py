"""What a missing part is said to need can be installed from the clone."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from services.common import extras
from services.common.errors import StartupError
from services.embedder import registry
from services.embedder.settings import EmbedderSettings, ModelSettings

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("backend", ["sentence-transformers", "flagembedding"])
def test_a_missing_backend_names_its_extra(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    model = ModelSettings(id="m", backend=backend, path="/nowhere")
    with pytest.raises(StartupError) as caught:
        registry.load_model(model, EmbedderSettings(database_dsn="postgresql://x/y"))
    found = re.search(r"\.venv/bin/pip install -e '\.\[([\w-]+)\]' in the clone", str(caught.value))
    assert found is not None
    assert found[1] in PROJECT["optional-dependencies"]


def test_no_message_sends_a_reader_to_a_package_index() -> None:
    """The distributions are not published: a name would point at nothing, or at somebody else's."""
    named = re.compile(r"pip install '?nianlun|pypi\.org/project/nianlun")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("clients/*/README.md")]
    code = [*(ROOT / "services").rglob("*.py"), *(ROOT / "clients").glob("*/nianlun*/**/*.py")]
    found = [path for path in [*pages, *code] if named.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_the_command_is_that_of_a_clone() -> None:
    assert extras.install("mcp") == ".venv/bin/pip install -e '.[mcp]'"
