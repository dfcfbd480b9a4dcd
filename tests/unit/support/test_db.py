"""The choice of the tests' PostgreSQL."""

from __future__ import annotations

import pytest

from tests.support import db


def test_a_dsn_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(db.DSN_VARIABLE, "postgresql://owner:pw@db.example:6432/postgres?sslmode=x")
    with db.serve("auto") as server:
        assert server.kind == "dsn"
        assert server.stop is None
        assert server.dsn_of("t1", None) == "postgresql://owner:pw@db.example:6432/t1?sslmode=x"
        role = server.dsn_of("t1", "nianlun_memory")
    assert role.startswith("postgresql://nianlun_memory:")
    assert role.endswith("@db.example:6432/t1?sslmode=x")


def test_dsn_without_a_dsn_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(db.DSN_VARIABLE, raising=False)
    with pytest.raises(pytest.exit.Exception, match=db.DSN_VARIABLE), db.serve("dsn"):
        pass


@pytest.mark.parametrize("choice", ["auto", "container"])
def test_require_docker_makes_a_missing_daemon_a_failure(
    monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    monkeypatch.delenv(db.DSN_VARIABLE, raising=False)
    monkeypatch.setenv("REQUIRE_DOCKER", "1")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(pytest.exit.Exception, match="Docker daemon") as ended, db.serve(choice):
        pass
    assert ended.value.returncode == 1
