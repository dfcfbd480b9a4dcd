"""Where the embedded PostgreSQL puts its socket, and what it does with what others left."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import psycopg

from services.local.postgres import EmbeddedPostgres, socket_dir_for, stop_leftover


def test_the_socket_path_is_short_whatever_the_path_of_the_data(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 200) / ("e" * 200)
    assert len(str(socket_dir_for(deep) / ".s.PGSQL.5432")) < 104


def test_two_data_directories_have_two_sockets(tmp_path: Path) -> None:
    assert socket_dir_for(tmp_path / "a") != socket_dir_for(tmp_path / "b")


def test_connection_urls_name_role_database_and_socket(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path)
    assert postgres.dsn(user="nianlun_memory").startswith(
        "postgresql://nianlun_memory@/nianlun?host="
    )


def test_a_stale_lock_file_is_dropped_and_its_process_left_alone(tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text("1\n/somewhere\n")
    stop_leftover(tmp_path)
    assert not (tmp_path / "postmaster.pid").exists()


def test_a_server_starts_again_beside_what_a_killed_one_left_in_the_middle_of_a_statement() -> None:
    # Not under pytest's own folder: the account of the server may not enter it.
    with tempfile.TemporaryDirectory(prefix="nl-crash-") as folder:
        postgres = EmbeddedPostgres(Path(folder) / "data")
        postgres.start()
        try:
            conn = psycopg.connect(postgres.dsn(), autocommit=True)
            # Looks at nothing but its own work for a minute: it does not see the server die.
            conn.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 1000000000)")
            assert postgres.pid is not None
            os.kill(postgres.pid, signal.SIGKILL)
            postgres.stop()
            postgres.start()
            conn.close()
            with psycopg.connect(postgres.dsn()) as again:
                assert again.execute("SELECT 1").fetchone() == (1,)
        finally:
            postgres.stop()
