"""The Kubernetes chart, rendered by Helm itself (its SDK, from a package).

Helm is a Go program in a shared library: it runs in a process of its own, where its runtime cannot
disturb that of the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "nianlun"


class HelmRefused(Exception):
    """Helm would not render these values; the text is its own."""


def render(values: dict[str, Any] | None = None, name: str = "demo") -> list[dict[str, Any]]:
    """The objects `helm install` would send, in no special order."""
    texts: dict[str, str] = _ask({"do": "render", "values": values or {}, "name": name})
    return [
        found
        for file, text in texts.items()
        if not file.endswith(".txt")
        for found in yaml.safe_load_all(text)
        if found
    ]


def lint() -> list[str]:
    """What `helm lint` has to say, less its wish for an icon."""
    answer: dict[str, Any] = _ask({"do": "lint"})
    said = [message["error"] for message in answer["messages"]] + list(answer["errors"])
    return [text for text in said if text != "icon is recommended"]


def _ask(question: dict[str, Any]) -> Any:
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise HelmRefused(done.stderr.strip().splitlines()[-1] if done.stderr else "no answer")
    return json.loads(done.stdout)


def _main() -> None:
    import helm_python

    question = json.load(sys.stdin)
    if question["do"] == "lint":
        json.dump(helm_python.lint(str(CHART), strict=True), sys.stdout)
        return
    with helm_python.Chart.load(str(CHART)) as chart:
        texts = chart.render(question["values"], name=question["name"], namespace="prod")
    json.dump(texts, sys.stdout)


if __name__ == "__main__":
    _main()
