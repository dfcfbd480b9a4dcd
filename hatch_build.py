"""What a wheel needs beyond the sources: the generated stubs, and the list of processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):
    """Adds the Procfile beside the code that reads it; refuses to build without stubs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before each wheel; an editable install finds both in the repository."""
        if version != "standard":
            return
        if not (Path(self.root) / "protos/gen/nianlun").is_dir():
            raise RuntimeError("the stubs are missing: run `make proto` first")
        build_data["force_include"]["Procfile"] = "services/local/Procfile"
