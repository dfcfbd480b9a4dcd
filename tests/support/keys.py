"""Keys for tests, written the way `nianlun key create` does: random, only the hash is stored."""

from __future__ import annotations

import hashlib
import secrets

import psycopg


def create(
    owner_dsn: str,
    tenant_id: str,
    *,
    scopes: tuple[str, ...] = ("read", "write", "admin"),
    expires_in_s: float | None = None,
) -> str:
    """A new key of `tenant_id`, which is created where it does not exist. Negative: expired."""
    key = random_key()
    with psycopg.connect(owner_dsn, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO auth.tenants (tenant_id) VALUES (%s) ON CONFLICT DO NOTHING", (tenant_id,)
        )
        conn.execute(
            "INSERT INTO auth.keys (tenant_id, key_hash, scopes, expire_time) VALUES (%s, %s, %s,"
            " CASE WHEN %s::float8 IS NULL THEN NULL ELSE now() + make_interval(secs => %s) END)",
            (tenant_id, _hash(key), list(scopes), expires_in_s, expires_in_s or 0.0),
        )
    return key


def revoke(owner_dsn: str, key: str) -> None:
    """Revoke at once; a service that has verified the key may go on for its cache time."""
    with psycopg.connect(owner_dsn, autocommit=True) as conn:
        conn.execute("UPDATE auth.keys SET revoke_time = now() WHERE key_hash = %s", (_hash(key),))


def random_key() -> str:
    """A well-formed key that nobody knows."""
    return f"nl_{secrets.token_urlsafe(32)}"


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
