"""Ways of breaking a valid request, found from its descriptor, so that no field is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from google.protobuf.descriptor import FieldDescriptor as F
from google.protobuf.message import Message

Change = Callable[[Message], None]

_INTEGERS = (F.TYPE_INT32, F.TYPE_INT64, F.TYPE_SINT32, F.TYPE_SINT64)


def clone(message: Message) -> Message:
    """A copy."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _places(message: Message, prefix: str = "") -> Iterator[tuple[str, Message]]:
    """The message and every message that is set inside it, with its path."""
    yield prefix, message
    for field, value in message.ListFields():
        if field.type != F.TYPE_MESSAGE or _is_map(field):
            continue
        path = f"{prefix}{field.name}"
        if field.is_repeated:
            for index, item in enumerate(value):
                yield from _places(item, f"{path}[{index}].")
        elif not field.message_type.full_name.startswith("google.protobuf."):
            yield from _places(value, f"{path}.")


def _is_map(field: F) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _variants(
    request: Message, wanted: Callable[[F], bool], value: object
) -> Iterator[tuple[str, Message]]:
    for index, (prefix, place) in enumerate(_places(request)):
        for field in place.DESCRIPTOR.fields:
            if not wanted(field):
                continue
            changed = clone(request)
            target = [m for _, m in _places(changed)][index]
            if field.is_repeated:
                del getattr(target, field.name)[:]
                getattr(target, field.name).append(value)
                yield f"{prefix}{field.name}[0]", changed
            else:
                setattr(target, field.name, value)
                yield f"{prefix}{field.name}", changed


def strings(request: Message, value: str) -> Iterator[tuple[str, Message]]:
    """One variant a string field, set or not, everywhere in the request."""
    yield from _variants(request, lambda f: f.type == F.TYPE_STRING, value)


def enums(request: Message, value: int = 9999) -> Iterator[tuple[str, Message]]:
    """One variant an enum field, with a number that the contract does not know."""
    yield from _variants(request, lambda f: f.type == F.TYPE_ENUM, value)


def integers(request: Message, value: int = -5) -> Iterator[tuple[str, Message]]:
    """One variant a signed integer field."""
    yield from _variants(request, lambda f: f.type in _INTEGERS, value)


def with_field(request: Message, name: str, value: object) -> Message | None:
    """The request with one field of that name changed, at its top or in its header; or None."""
    changed = clone(request)
    for _, place in _places(changed):
        if name in place.DESCRIPTOR.fields_by_name:
            setattr(place, name, value)
            return changed
    return None


def bad_utf8(request: Message) -> bytes | None:
    """The request on the wire with one top-level string that is no UTF-8 (a lone surrogate)."""
    for field in request.DESCRIPTOR.fields:
        if field.type == F.TYPE_STRING:
            value = b"ab\xed\xa0\x80cd"
            tag = (field.number << 3) | 2
            return request.SerializeToString() + _varint(tag) + _varint(len(value)) + value
    return None


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append((value & 127) | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
