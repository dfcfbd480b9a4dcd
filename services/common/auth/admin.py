"""Administration of tenants and keys, over the owner's connection (blocking; used by the CLI)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
from psycopg.rows import class_row

from services.common import errors, validate
from services.common.auth import keys


@dataclass(frozen=True)
class CreatedKey:
    """A new key. ``key`` is shown once and stored nowhere."""

    key_id: str
    key: str


@dataclass(frozen=True)
class KeyInfo:
    """What is known of a key; the key itself is not."""

    tenant_id: str
    key_id: str
    name: str
    scopes: list[str]
    create_time: datetime
    expire_time: datetime | None
    revoke_time: datetime | None


def create_tenant(
    owner_dsn: str, tenant_id: str, name: str = "", *, exist_ok: bool = False
) -> None:
    """Create a tenant; ALREADY_EXISTS unless ``exist_ok``."""
    tenant_id = validate.ident("tenant_id", tenant_id)
    with psycopg.connect(owner_dsn) as conn:
        cursor = conn.execute(
            "INSERT INTO auth.tenants (tenant_id, name) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (tenant_id, name),
        )
        if cursor.rowcount == 0 and not exist_ok:
            raise errors.already_exists("tenant", tenant_id)


def set_tenant_disabled(owner_dsn: str, tenant_id: str, disabled: bool) -> None:
    """Stop or allow all keys of a tenant; takes effect within the services' cache time."""
    with psycopg.connect(owner_dsn) as conn:
        cursor = conn.execute(
            "UPDATE auth.tenants SET disable_time = CASE WHEN %s THEN now() END"
            " WHERE tenant_id = %s",
            (disabled, tenant_id),
        )
        if cursor.rowcount == 0:
            raise errors.not_found("tenant", tenant_id)


def create_key(
    owner_dsn: str,
    tenant_id: str,
    scopes: Collection[str] = ("read", "write"),
    *,
    name: str = "",
    ttl: timedelta | None = None,
) -> CreatedKey:
    """Create a key. NOT_FOUND for an unknown tenant, INVALID_ARGUMENT for a bad scope."""
    unknown = set(scopes) - keys.SCOPES
    if unknown or not scopes:
        raise errors.invalid_argument("scopes", f"must be some of {', '.join(sorted(keys.SCOPES))}")
    if "service" in scopes and tenant_id != keys.SERVICE_TENANT:
        raise errors.invalid_argument("scopes", "service keys are made by create_service_key")
    key = keys.generate()
    with psycopg.connect(owner_dsn) as conn:
        try:
            row = conn.execute(
                "INSERT INTO auth.keys (tenant_id, key_hash, name, scopes, expire_time)"
                " VALUES (%s, %s, %s, %s, %s) RETURNING key_id",
                (
                    tenant_id,
                    keys.digest(key),
                    name,
                    sorted(scopes),
                    None if ttl is None else datetime.now(UTC) + ttl,
                ),
            ).fetchone()
        except psycopg.errors.ForeignKeyViolation:
            raise errors.not_found("tenant", tenant_id) from None
    assert row is not None
    return CreatedKey(key_id=str(row[0]), key=key)


def adopt_key(
    owner_dsn: str, tenant_id: str, key: str, scopes: Collection[str], *, name: str = ""
) -> None:
    """Accept a key that was made elsewhere (a secret store); a key that is known already stays.

    INVALID_ARGUMENT for a key of another form, NOT_FOUND for an unknown tenant.
    """
    if not keys.well_formed(key):
        raise errors.invalid_argument("key", "must be nl_ and 43 characters of A-Z a-z 0-9 _ -")
    with psycopg.connect(owner_dsn) as conn:
        try:
            conn.execute(
                "INSERT INTO auth.keys (tenant_id, key_hash, name, scopes)"
                " SELECT %(tenant)s, %(hash)s, %(name)s, %(scopes)s"
                " WHERE NOT EXISTS (SELECT 1 FROM auth.keys WHERE key_hash = %(hash)s)",
                {
                    "tenant": tenant_id,
                    "hash": keys.digest(key),
                    "name": name,
                    "scopes": sorted(scopes),
                },
            )
        except psycopg.errors.ForeignKeyViolation:
            raise errors.not_found("tenant", tenant_id) from None


def create_service_key(owner_dsn: str, *, name: str = "workers") -> CreatedKey:
    """Create a key with which background work acts for the tenant of each job."""
    return create_key(owner_dsn, keys.SERVICE_TENANT, ["service"], name=name)


def successor(owner_dsn: str, key: str) -> tuple[str, CreatedKey]:
    """A new key with the tenant, scopes and name of a good one, which stays good; returns the id of
    the old one and the new one. A key that expires has a successor that lives as long.

    NOT_FOUND for a key that is unknown, revoked or expired.
    """
    with psycopg.connect(owner_dsn) as conn:
        row = conn.execute(
            "SELECT k.tenant_id, k.key_id::text, k.scopes, k.name, k.expire_time - k.create_time"
            " FROM auth.keys AS k JOIN auth.verify(%(hash)s) USING (tenant_id, key_id)",
            {"hash": keys.digest(key)},
        ).fetchone()
    if row is None:
        raise errors.not_found("key", "the one given")
    tenant_id, key_id, scopes, name, ttl = row
    return key_id, create_key(owner_dsn, tenant_id, scopes, name=name, ttl=ttl)


def revoke_key(owner_dsn: str, key_id: str) -> None:
    """Revoke a key for good; NOT_FOUND for an unknown id. Takes effect within the cache time."""
    with psycopg.connect(owner_dsn) as conn:
        cursor = conn.execute(
            "UPDATE auth.keys SET revoke_time = coalesce(revoke_time, now())"
            " WHERE key_id::text = %s",
            (key_id,),
        )
        if cursor.rowcount == 0:
            raise errors.not_found("key", key_id)


def list_keys(owner_dsn: str, tenant_id: str | None = None) -> list[KeyInfo]:
    """Keys of one tenant or of all, oldest first."""
    with (
        psycopg.connect(owner_dsn) as conn,
        conn.cursor(row_factory=class_row(KeyInfo)) as cursor,
    ):
        cursor.execute(
            "SELECT tenant_id, key_id::text AS key_id, name, scopes, create_time, expire_time,"
            " revoke_time FROM auth.keys WHERE %(tenant)s::text IS NULL OR tenant_id = %(tenant)s"
            " ORDER BY create_time, key_id",
            {"tenant": tenant_id},
        )
        return cursor.fetchall()
