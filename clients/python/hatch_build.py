"""Generates the stubs into the distribution: from the repository's protos, or those of an sdist."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):
    """An sdist carries the protos; a wheel carries the stubs with their types."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before each build."""
        protos = self._protos()
        if self.target_name == "sdist":
            build_data["force_include"][str(protos / "nianlun")] = "protos/nianlun"
            return
        if version == "standard":
            self._folder = tempfile.TemporaryDirectory()
            generated = Path(self._folder.name)
            _generate(protos, generated)
            build_data["force_include"][str(generated / "nianlun")] = "nianlun"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """After each build."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _protos(self) -> Path:
        root = Path(self.root)
        for folder in (root / "protos", root.parent.parent / "protos"):
            if (folder / "nianlun").is_dir():
                return folder
        raise RuntimeError("no protos here: build in the repository or from an sdist")


def _generate(protos: Path, into: Path) -> None:
    files = sorted(str(path) for path in (protos / "nianlun").rglob("*.proto"))
    # protoc looks for its plugins, which lie beside this interpreter, on the path.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", "-I", str(protos)),
            *(f"--python_out={into}", f"--grpc_python_out={into}"),
            *(f"--mypy_out=quiet:{into}", f"--mypy_grpc_out=quiet:{into}"),
            *files,
        ],
        check=True,
        env={**os.environ, "PATH": path},
    )
