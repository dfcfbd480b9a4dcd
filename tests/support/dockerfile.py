"""deploy/Dockerfile as data: its stages, and what an image of a target is made of."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = REPOSITORY / "deploy" / "Dockerfile"


@dataclass(frozen=True)
class Instruction:
    """One instruction: `RUN`, and everything behind it on one line."""

    name: str
    text: str


@dataclass
class Stage:
    """One `FROM ... AS name` and its instructions, without those of its base."""

    name: str
    base: str
    instructions: list[Instruction] = field(default_factory=list)


@dataclass(frozen=True)
class Image:
    """What `docker inspect` would tell of a target. `health` is empty where there is none."""

    environment: dict[str, str]
    command: tuple[str, ...]
    entrypoint: tuple[str, ...]
    health: tuple[str, ...]
    user: str
    ports: tuple[int, ...]
    volumes: tuple[str, ...]


def parse(path: Path = DOCKERFILE) -> dict[str, Stage]:
    """Stages by name, in order."""
    text = "\n".join(
        line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")
    )
    stages: dict[str, Stage] = {}
    current: Stage | None = None
    for line in text.replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if not name:
            continue
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            current = stages[stage.strip()] = Stage(stage.strip(), base.strip())
        elif current is not None:
            words = " ".join(rest.split()) if name != "ENV" else rest.strip()
            current.instructions.append(Instruction(name, words))
    return stages


def chain(stages: dict[str, Stage], target: str) -> list[Stage]:
    """The stages an image is built from, the first one first."""
    found = []
    name = target
    while name in stages:
        found.append(stages[name])
        name = stages[name].base
    return found[::-1]


def image(stages: dict[str, Stage], target: str) -> Image:
    """What the target's image declares, bases included."""
    environment: dict[str, str] = {}
    last = {"CMD": "[]", "ENTRYPOINT": "[]", "HEALTHCHECK": "NONE", "USER": "root"}
    ports: list[int] = []
    volumes: list[str] = []
    for stage in chain(stages, target):
        for item in stage.instructions:
            if item.name == "ENV":
                for word in shlex.split(item.text):
                    key, _, value = word.partition("=")
                    environment[key] = value
            elif item.name == "EXPOSE":
                ports += [int(port) for port in item.text.split()]
            elif item.name == "VOLUME":
                volumes.append(item.text)
            elif item.name in last:
                last[item.name] = item.text
    health = re.sub(r"^.*?CMD ", "", last["HEALTHCHECK"]) if last["HEALTHCHECK"] != "NONE" else "[]"
    return Image(
        environment=environment,
        command=tuple(json.loads(last["CMD"])),
        entrypoint=tuple(json.loads(last["ENTRYPOINT"])),
        health=tuple(json.loads(health)),
        user=last["USER"],
        ports=tuple(ports),
        volumes=tuple(volumes),
    )
