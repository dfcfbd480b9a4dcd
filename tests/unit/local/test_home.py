"""The folder of the local stack: one owner, secrets closed to others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.local.errors import LocalError
from services.local.home import Home, StackInfo, write_secret


def test_a_second_owner_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with home.owned(), pytest.raises(LocalError, match="in use by another stack"), home.owned():
        pass


def test_the_folder_is_free_again_when_its_owner_was_killed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    script = (
        "import sys, time; from pathlib import Path; from services.local.home import Home\n"
        "with Home(Path(sys.argv[1])).owned():\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(home.root)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LocalError), home.owned():
            pass
        holder.kill()
        holder.wait()
        with home.owned():
            pass


def test_secrets_are_readable_by_their_user_only(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_secret(path, "nl_secret")
    write_secret(path, "nl_other")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "nl_other"


def test_addresses_survive_the_file_and_hide_the_key(tmp_path: Path) -> None:
    home = Home(tmp_path)
    info = StackInfo(
        targets={"memory": "127.0.0.1:1"},
        gateway="http://127.0.0.1:2",
        tenant="local",
        key="nl_secret",
        dsn="postgresql://",
        log="log",
        pid=1,
    )
    assert home.read_info() is None
    home.write_info(info)
    assert home.read_info() == info
    assert "nl_secret" not in repr(info)
