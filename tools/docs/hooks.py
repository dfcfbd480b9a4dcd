"""What MkDocs runs: adds the pages that are made, and puts every page into the navigation.

Nothing is written into `docs/`: the pages exist while the site is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tools.docs import figures, reference

ROOT: Final = Path(__file__).resolve().parents[2]
_RESULTS: Final = ROOT / "benchmarks/results"

# Titles and order; what has no place here is found by its folder.
_NAV: Final[Sequence[tuple[str, Sequence[str]]]] = (
    ("Start", ("quickstart.md", "concepts.md", "architecture.md")),
    ("How to", ("howto/index.md", "howto/*.md")),
    ("Services", ("embedder.md", "search.md", "memory.md", "orchestrator.md")),
    ("API reference", ("reference/index.md", "reference/*.md")),
    (
        "Running it",
        (
            "configuration.md",
            "errors.md",
            "security.md",
            "operations.md",
            "operations/index.md",
            "operations/*.md",
        ),
    ),
    ("Project", ("benchmarks.md", "testing.md", "contributing.md")),
    ("Decisions", ("decisions/*.md",)),
    ("中文", ("zh/quickstart.md", "zh/concepts.md", "zh/*.md")),
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made, then fill the navigation."""
    for path, text in reference.pages(ROOT / "protos").items():
        files.append(File.generated(config, f"reference/{path}", content=text))
    files.append(File.generated(config, "benchmarks.md", content=figures.page(_RESULTS)))
    for plot in figures.images(_RESULTS):
        files.append(
            File.generated(config, f"images/benchmarks/{plot.name}", abs_src_path=str(plot))
        )
    files.append(File.generated(config, "howto/index.md", content=_how_tos(ROOT / "docs/howto")))
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "contributing.md", content=contributing))
    config["nav"] = [{"Nianlun": "index.md"}, *_navigation(sorted(files.src_uris))]
    return files


def _how_tos(folder: Path) -> str:
    """A list of the how-tos: the title and the first sentence of each."""
    lines = ["# How to", ""]
    for path in sorted(folder.glob("*.md")):
        title, _, rest = path.read_text(encoding="utf-8").partition("\n")
        first = " ".join(rest.strip().split("\n\n")[0].split())
        sentence = first.split(". ")[0].removesuffix(".")
        lines.append(f"- [{title.lstrip('# ')}]({path.name}): {sentence}.")
    return "\n".join(lines) + "\n"


def _navigation(pages: Sequence[str]) -> Iterator[dict[str, Any]]:
    left = [page for page in pages if page.endswith(".md") and page != "index.md"]
    for title, patterns in _NAV:
        chosen: list[str] = []
        for pattern in patterns:
            # A star stays inside a folder.
            depth = pattern.count("/")
            chosen += [
                page for page in left if Path(page).match(pattern) and page.count("/") == depth
            ]
            left = [page for page in left if page not in chosen]
        if chosen:
            yield {title: chosen}
    if left:
        yield {"More": left}
