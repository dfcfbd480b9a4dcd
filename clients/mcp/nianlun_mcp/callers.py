"""Who calls: the key and the user of one tool call, from where the model cannot reach."""

from __future__ import annotations

import re
import urllib.parse
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nianlun_mcp.settings import McpSettings

USER_HEADER = "x-nianlun-user"
SESSION_HEADER = "x-nianlun-session"
_EXTENDED = "utf-8''"
_KEY = re.compile(r"[\x21-\x7e]{1,256}")


class RefusedError(Exception):
    """A call that is not answered. ``status`` is what HTTP says; the text is for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Caller:
    """The key a call acts with, the user it is about, and the session that turns are filed under.

    ``user_id`` is empty only where the model chooses the user.
    """

    key: str = field(repr=False)
    user_id: str
    session_id: str


class StdioCallers:
    """One process, one caller: all from the environment of the process."""

    def __init__(self, settings: McpSettings) -> None:
        if not _KEY.fullmatch(settings.connection.key):
            raise RefusedError(
                401,
                "there is no key: set NIANLUN_API_KEY to a key of the tenant,"
                " or give --local for the stack of `make serve`",
            )
        if not settings.user_id and not settings.choose_user:
            raise RefusedError(
                400,
                "there is no user: set NIANLUN_MCP_USER (or --user), or let the model name users"
                " with --choose-user",
            )
        self._caller = Caller(
            key=settings.connection.key,
            user_id=settings.user_id,
            session_id=settings.session_id or f"mcp-{uuid.uuid4().hex[:12]}",
        )

    def of(self, _headers: Mapping[str, str] | None) -> Caller:
        """The caller of a message."""
        return self._caller


class HttpCallers:
    """Every request names its caller in its headers; the server has no key to lend."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings

    def of(self, headers: Mapping[str, str] | None) -> Caller:
        """The caller of a request.

        Raises:
            RefusedError: no key (401), no user (400), or another user than the server's (403).
        """
        if headers is None:
            raise RefusedError(401, "the request has no headers, so no key")
        scheme, _, key = headers.get("authorization", "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not _KEY.fullmatch(key):
            raise RefusedError(401, "a key is needed: Authorization: Bearer nl_...")
        return Caller(key=key, user_id=self._user(headers), session_id=self._session(headers))

    def _user(self, headers: Mapping[str, str]) -> str:
        named = _text(headers, USER_HEADER)
        bound = self._settings.user_id
        if bound and named and named != bound:
            raise RefusedError(403, "this server serves another user")
        user_id = bound or named
        if not user_id and not self._settings.choose_user:
            raise RefusedError(400, "a user is needed: X-Nianlun-User: <the user's id>")
        return user_id

    def _session(self, headers: Mapping[str, str]) -> str:
        named = _text(headers, SESSION_HEADER) or self._settings.session_id
        return named or f"mcp-{datetime.now(UTC):%Y-%m-%d}"


def _text(headers: Mapping[str, str], name: str) -> str:
    """A header's value: UTF-8, or ``UTF-8''...`` percent-encoded (RFC 8187) from clients whose
    headers are ASCII only."""
    try:
        # HTTP libraries hand over the bytes of a header as Latin-1.
        value = headers.get(name, "").encode("latin-1").decode("utf-8")
        if value[: len(_EXTENDED)].lower() == _EXTENDED:
            value = urllib.parse.unquote(value[len(_EXTENDED) :], errors="strict")
    except UnicodeError:
        raise RefusedError(400, f"the header {name} is not UTF-8") from None
    return value
