"""Tenants and keys, as the command line administers them."""

from datetime import timedelta

import pytest

from services.common import errors
from services.common.auth import KeyVerifier, admin, keys
from services.common.db import Database


async def test_keys_are_made_listed_and_revoked(chassis_db, memory_db: Database):
    dsn = chassis_db.owner_dsn
    admin.create_tenant(dsn, "adm-1", "Acme")
    with pytest.raises(errors.DomainError, match="ALREADY_EXISTS"):
        admin.create_tenant(dsn, "adm-1")
    admin.create_tenant(dsn, "adm-1", exist_ok=True)
    made = admin.create_key(dsn, "adm-1", ["read"], name="ci", ttl=timedelta(hours=1))
    [info] = admin.list_keys(dsn, "adm-1")
    assert (info.key_id, info.name, info.scopes) == (made.key_id, "ci", ["read"])
    assert info.expire_time is not None
    verifier = KeyVerifier(memory_db, cache_s=0)
    assert (await verifier.verify(made.key)).tenant_id == "adm-1"
    admin.revoke_key(dsn, made.key_id)
    with pytest.raises(errors.DomainError, match="UNAUTHENTICATED"):
        await verifier.verify(made.key)


async def test_a_disabled_tenant_has_no_good_keys(chassis_db, memory_db: Database):
    dsn = chassis_db.owner_dsn
    admin.create_tenant(dsn, "adm-2")
    key = admin.create_key(dsn, "adm-2").key
    verifier = KeyVerifier(memory_db, cache_s=0)
    admin.set_tenant_disabled(dsn, "adm-2", True)
    with pytest.raises(errors.DomainError, match="UNAUTHENTICATED"):
        await verifier.verify(key)
    admin.set_tenant_disabled(dsn, "adm-2", False)
    await verifier.verify(key)


def test_the_key_itself_is_stored_nowhere(chassis_db):
    admin.create_tenant(chassis_db.owner_dsn, "adm-3")
    key = admin.create_key(chassis_db.owner_dsn, "adm-3").key
    with chassis_db.connect() as owner:
        [row] = owner.execute("SELECT * FROM auth.keys WHERE tenant_id = 'adm-3'").fetchall()
    assert key not in repr(row)
    assert bytes(row["key_hash"]) == keys.digest(key)


@pytest.mark.parametrize("scopes", [[], ["root"], ["read", "service"]])
def test_bad_scopes_are_refused(chassis_db, scopes: list[str]):
    admin.create_tenant(chassis_db.owner_dsn, "adm-4", exist_ok=True)
    with pytest.raises(errors.DomainError, match="INVALID_ARGUMENT"):
        admin.create_key(chassis_db.owner_dsn, "adm-4", scopes)


def test_unknown_things_are_not_found(chassis_db):
    dsn = chassis_db.owner_dsn
    for call in (
        lambda: admin.create_key(dsn, "nobody"),
        lambda: admin.revoke_key(dsn, "not-a-uuid"),
        lambda: admin.set_tenant_disabled(dsn, "nobody", True),
    ):
        with pytest.raises(errors.DomainError, match="NOT_FOUND"):
            call()
