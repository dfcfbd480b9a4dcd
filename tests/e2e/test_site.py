"""The documentation site: it builds without a warning, is complete, and fetches nothing."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from nianlun.transport import SERVICES

pytest.importorskip("material")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    out = tmp_path_factory.mktemp("site")
    paths = ("", "clients/python", "protos/gen")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env={
            **os.environ,
            "NO_MKDOCS_2_WARNING": "1",
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in paths),
        },
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


def test_every_document_is_a_page_and_in_the_navigation(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    for path in (ROOT / "docs").rglob("*.md"):
        page = path.relative_to(ROOT / "docs").with_suffix(".html")
        name = str(page).replace("README.html", "index.html")
        assert (site / name).exists(), name
        assert f'href="{name}"' in front, f"{name} is not in the navigation"
    for name in (
        "benchmarks.html",
        "contributing.html",
        "howto/index.html",
        "reference/index.html",
    ):
        assert (site / name).exists(), name


def test_the_reference_holds_every_rpc_message_field_and_value(site: Path) -> None:
    for service in (*SERVICES, "common"):
        contract = importlib.import_module(f"nianlun.{service}.v1.{service}_pb2").DESCRIPTOR
        text = (site / f"reference/{service}.html").read_text(encoding="utf-8")
        for described in contract.services_by_name.values():
            for method in described.methods:
                assert f'id="{method.name.lower()}"' in text, method.full_name
        for message in contract.message_types_by_name.values():
            assert f'id="type-{message.name.lower()}"' in text, message.full_name
            for field in message.fields:
                assert f"<code>{field.name}</code>" in text, field.full_name
        for enum in contract.enum_types_by_name.values():
            for value in enum.values:
                assert f"<code>{value.name}</code>" in text, value.full_name


def test_the_reference_has_bounds_and_errors_from_the_contracts(site: Path) -> None:
    text = (site / "reference/memory.html").read_text(encoding="utf-8")
    assert "1 to 64 messages, at most 128,000 characters together" in text
    assert "FRESHNESS_NOT_MET if at_least is not reached in time" in text
    assert '<a href="common.html#type-degradation">Degradation</a>' in text


def test_the_benchmarks_are_those_of_the_results(site: Path) -> None:
    text = (site / "benchmarks.html").read_text(encoding="utf-8")
    for path in (ROOT / "benchmarks/results").glob("*.json"):
        for figure in json.loads(path.read_text(encoding="utf-8"))["figures"]:
            assert figure["name"] in text
    for plot in (ROOT / "benchmarks/results").glob("*.svg"):
        assert (site / "images/benchmarks" / plot.name).exists()


class _Fetched(HTMLParser):
    """What a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "embed"):
            self.urls.append(values.get("src") or "")
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev", "alternate"):
            self.urls.append(values.get("href") or "")


def test_reading_it_fetches_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        parser = _Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        outside = [url for url in parser.urls if re.match(r"(https?:)?//", url)]
        assert outside == [], page
    for style in site.rglob("*.css"):
        found = re.findall(
            r"url\(\s*['\"]?((?:https?:)?//[^)]*)", style.read_text(encoding="utf-8")
        )
        assert found == [], style


@pytest.mark.browser
def test_in_a_browser_search_works_and_no_other_host_is_asked(site: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("Chromium is not installed (apt install chromium)")
    handler = partial(_Quiet, directory=str(site))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    own = f"http://127.0.0.1:{server.server_port}"
    asked: list[str] = []
    # A loop of its own: pytest's runs in this thread.
    with ThreadPoolExecutor(1) as other:
        found = other.submit(_browse, sync_api, chromium, own, asked).result()
    server.shutdown()
    assert "memory.html" in found
    assert asked
    assert [url for url in asked if not url.startswith((own, "data:", "blob:"))] == []


def _browse(sync_api: Any, chromium: str, own: str, asked: list[str]) -> str:
    """Read a page of each kind, search, and answer where the first hit leads."""
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for name in ("architecture.html", "zh/concepts.html", "reference/memory.html"):
            page.goto(f"{own}/{name}", wait_until="networkidle")
        page.goto(f"{own}/index.html", wait_until="networkidle")
        links: list[str] = []
        deadline = time.monotonic() + 60
        # What is typed before the page's script listens is lost: type again until it has heard.
        while not links and time.monotonic() < deadline:
            page.click("input.md-search__input")
            page.fill("input.md-search__input", "")
            page.type("input.md-search__input", "tombstone")
            page.wait_for_timeout(1_000)
            links = page.evaluate(
                "() => [...document.querySelectorAll('a.md-search-result__link')].map(a => a.href)"
            )
        browser.close()
        return " ".join(links)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Not into the output of the tests."""


def test_it_can_be_searched_in_both_languages(site: Path) -> None:
    index = (site / "search/search_index.json").read_text(encoding="utf-8")
    texts = json.loads(index)
    assert set(texts["config"]["lang"]) == {"en", "zh"}
    joined = " ".join(each["text"] for each in texts["docs"])
    assert "新鲜轮次" in joined or "轮次" in joined
    assert "Fresh turn" in " ".join(each["title"] for each in texts["docs"])
