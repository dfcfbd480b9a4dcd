"""What an operation is: one unary RPC, and how its request is built from Python arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar

from google.protobuf.message import Message as ProtoMessage

P = ParamSpec("P")
Response = TypeVar("Response", bound=ProtoMessage)


@dataclass(frozen=True)
class Operation(Generic[P, Response]):
    """One unary RPC: on which service, by what name, how its request is built, what it answers.

    ``writes_an_answer``: a model may write for minutes, so its deadline is that of streams.
    """

    service: str
    rpc: str
    build: Callable[P, ProtoMessage]
    response: type[Response]
    writes_an_answer: bool = False


def operation(
    service: str, rpc: str, response: type[Response], *, writes_an_answer: bool = False
) -> Callable[[Callable[P, ProtoMessage]], Operation[P, Response]]:
    """Make the decorated request builder an operation that answers ``response``."""

    def decorate(build: Callable[P, ProtoMessage]) -> Operation[P, Response]:
        return Operation(service, rpc, build, response, writes_an_answer)

    return decorate
