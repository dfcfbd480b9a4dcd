"""Authentication and scopes: every RPC but health and reflection needs a key that allows it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

from services.common import context, errors, validate
from services.common.auth import KeyVerifier
from services.common.auth.keys import SERVICE_TENANT
from services.common.context import Caller
from services.common.grpc.interceptors.base import Interceptor, RpcCall

TENANT_HEADER = "x-nianlun-tenant"
OPEN_SERVICES = frozenset(
    {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "grpc.reflection.v1.ServerReflection",
    }
)
_IMPLIED = {
    "read": frozenset({"read", "admin", "service"}),
    "write": frozenset({"write", "admin", "service"}),
    "admin": frozenset({"admin"}),
}


class AuthInterceptor(Interceptor):
    """Binds the Caller. ``scopes`` maps ``package.Service/Method`` to the scope it needs."""

    def __init__(self, verifier: KeyVerifier, scopes: Mapping[str, str]) -> None:
        self._verifier = verifier
        self._scopes = dict(scopes)

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Verify the key, then the scope, then go on as that caller."""
        if call.service in OPEN_SERVICES:
            yield
            return
        caller = await self._caller(call)
        call.trail.tenant_id = caller.tenant_id
        needed = self._scopes.get(call.name, "write")
        if not caller.scopes & _IMPLIED[needed]:
            raise errors.permission_denied(needed)
        with context.bound(replace(context.current(), caller=caller)):
            yield

    async def _caller(self, call: RpcCall) -> Caller:
        scheme, _, key = call.metadata.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise errors.unauthenticated("no bearer key")
        verified = await self._verifier.verify(key.strip())
        tenant_id = _acting_tenant(
            verified.tenant_id, verified.scopes, call.metadata.get(TENANT_HEADER)
        )
        return Caller(
            tenant_id=tenant_id,
            key_id=verified.key_id,
            scopes=verified.scopes,
            credential=key.strip(),
        )


def required_scopes(services: Iterable[str]) -> dict[str, str]:
    """The scope each method needs: read where it has no side effects, else write."""
    pool = descriptor_pool.Default()
    scopes = {}
    for name in services:
        for method in pool.FindServiceByName(name).methods:
            scopes[f"{name}/{method.name}"] = "read" if has_no_side_effects(method) else "write"
    return scopes


def has_no_side_effects(method: MethodDescriptor) -> bool:
    """True where the contract marks the method NO_SIDE_EFFECTS."""
    level: int = method.GetOptions().idempotency_level
    return level == MethodOptions.NO_SIDE_EFFECTS


def _acting_tenant(own: str, scopes: frozenset[str], named: str | None) -> str:
    """A service key acts for the tenant the call names; any other key for its own one only."""
    if "service" in scopes and own == SERVICE_TENANT:
        if not named:
            raise errors.permission_denied("tenant")
        tenant = decode_tenant(named)
        if tenant == SERVICE_TENANT:
            raise errors.permission_denied("tenant")
        return tenant
    if named and decode_tenant(named) != own:
        raise errors.permission_denied("service")
    return own


def encode_tenant(tenant_id: str) -> str:
    """A tenant id as ASCII metadata; other characters would fail in the client's transport."""
    return tenant_id.encode("unicode_escape").decode("ascii")


def decode_tenant(header: str) -> str:
    """The inverse of ``encode_tenant``; INVALID_ARGUMENT for a malformed header."""
    try:
        decoded = header.encode("ascii").decode("unicode_escape")
    except (UnicodeDecodeError, UnicodeEncodeError):
        raise errors.invalid_argument(TENANT_HEADER, "is malformed") from None
    return validate.ident(TENANT_HEADER, decoded)
