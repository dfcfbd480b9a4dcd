"""The container's entrypoint: secrets come as files."""

from __future__ import annotations

import subprocess
from pathlib import Path

ENTRYPOINT = Path(__file__).resolve().parents[3] / "deploy" / "entrypoint.sh"


def test_other_files_are_left_alone_and_the_command_is_run() -> None:
    done = subprocess.run(
        ["sh", str(ENTRYPOINT), "sh", "-c", "echo $NIANLUN_TLS_CERT_FILE; exit 7"],
        env={"PATH": "/usr/bin:/bin", "NIANLUN_TLS_CERT_FILE": "/etc/tls/cert.pem"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7
    assert done.stdout.strip() == "/etc/tls/cert.pem"


def test_a_missing_secret_is_named() -> None:
    done = subprocess.run(
        ["sh", str(ENTRYPOINT), "true"],
        env={"PATH": "/usr/bin:/bin", "PGPASSWORD_FILE": "/run/secrets/not_there"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "/run/secrets/not_there" in done.stderr
