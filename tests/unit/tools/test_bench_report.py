"""What a benchmark run leaves behind."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import numpy as np
import pytest

from benchmarks import report
from benchmarks.memory import plot
from benchmarks.report import Figure, Report


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        (Figure("a", 2.0, 2.0), "figure a 2 2 ok"),
        (Figure("a", 1.5, 2.0), "figure a 1.5 2 short"),
        (Figure("a", 2.0, 2.0, above=True), "figure a 2 2 short"),
        (Figure("a", 2.5, 2.0, higher=False), "figure a 2.5 2 short"),
        (Figure("a", 0.0, 0.0, higher=False), "figure a 0 0 ok"),
        (Figure("a", 7.0), "figure a 7 - ok"),
        (Figure("a", float("nan"), 1.0), "figure a nan 1 short"),
    ],
)
def test_a_figure_says_whether_it_keeps_its_limit(figure: Figure, shown: str) -> None:
    assert str(figure) == shown


def test_a_run_is_written_with_its_machine_and_its_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    made = Report("some", "benchmarks.some")
    made.figure("kept_ms", 3.0, 5.0, higher=False)
    made.figure("seen", np.float32(1.5))
    made.details["by numpy"] = np.int64(4)
    made.bars("a < b", {"one": 1.0, "two": 2.0})
    made.text.append("| a | table |")
    made.write()
    assert capsys.readouterr().out == "figure kept_ms 3 5 ok\nfigure seen 1.5 - ok\n"
    body = json.loads((tmp_path / "some.json").read_text(encoding="utf-8"))
    assert body["figures"] == [
        {"name": "kept_ms", "value": 3.0, "limit": 5.0, "higher_is_better": False, "ok": True},
        {"name": "seen", "value": 1.5, "limit": None, "higher_is_better": True, "ok": True},
    ]
    assert body["details"] == {"by numpy": 4}
    assert body["command"].endswith("python -m benchmarks.some")
    assert body["machine"]["cores"] >= 1
    assert body["machine"]["cpu"]
    assert platform.release() not in str(body["machine"])
    markdown = (tmp_path / "some.md").read_text(encoding="utf-8")
    assert "| kept_ms | 3 | 5 | ok |\n| seen | 1.5 | - | ok |\n\n![some](some.svg)" in markdown
    assert "| a | table |" in markdown
    drawn = (tmp_path / "some.svg").read_text(encoding="utf-8")
    assert "a &lt; b" in drawn
    assert drawn.count("<rect") == 3
    assert made.ok


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (
            "processor\t: 0\nmodel name\t: AMD EPYC  9R14 \nflags: x\nmodel name\t: B\n",
            "AMD EPYC 9R14",
        ),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", "aarch64"),
        ("", "aarch64"),
    ],
)
def test_the_processor_is_named(
    text: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "aarch64")
    cpuinfo = tmp_path / "cpuinfo"
    if text:
        cpuinfo.write_text(text)
    assert report.cpu_model(cpuinfo) == model


def test_a_run_without_charts_has_no_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    made = Report("bare", "benchmarks.bare")
    made.figure("short", 1.0, 2.0)
    made.write()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bare.json", "bare.md"]
    assert not made.ok


def test_the_plot_of_memory_marks_limits() -> None:
    drawn = plot.bars([Figure("load_p50_ms", 4.0, 8.0, higher=False), Figure("elsewhere", 1.0)])
    assert drawn is not None
    assert drawn.count("<rect") == drawn.count("<line") == 1
    assert plot.bars([Figure("elsewhere", 1.0)]) is None
