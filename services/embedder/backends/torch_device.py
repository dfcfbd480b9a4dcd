"""Device, precision and failures of torch models. Importing this imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from services.embedder.model import ModelUnavailable, OutOfMemory

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


def choose_device(wanted: str) -> torch.device:
    """The device for `wanted`; `auto` takes a GPU if there is one. Raises ModelUnavailable."""
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", 0)
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise ModelUnavailable(f"unknown device {wanted!r}: use auto, cpu or cuda:0") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelUnavailable(f"device {wanted!r} was asked for, but torch sees no GPU")
    return device


def choose_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """The precision for `wanted`. Half precision on a CPU is refused: it is slower and less
    exact.
    """
    if wanted == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    dtype = {
        "float32": torch.float32,
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
    }[wanted]
    if device.type == "cpu" and dtype is not torch.float32:
        raise ModelUnavailable(f"{wanted} is for GPUs only: use float32 on a CPU")
    return dtype


def name_of(dtype: torch.dtype) -> str:
    """`float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


@contextmanager
def forward_pass() -> Iterator[None]:
    """Inference mode; torch's several ways to run out of memory become OutOfMemory."""
    try:
        with torch.inference_mode():
            yield
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        raise OutOfMemory(str(error)) from error
    except RuntimeError as error:
        if any(sign in str(error).lower() for sign in _NO_MEMORY):
            raise OutOfMemory(str(error)) from error
        raise


def batch_tensors(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device, *, left: bool = False
) -> dict[str, torch.Tensor]:
    """`input_ids` and `attention_mask`, (batch, longest), padded at the end or at the start."""
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for at, row in enumerate(rows):
        place = slice(longest - len(row), longest) if left else slice(0, len(row))
        ids[at, place] = torch.tensor(row, dtype=torch.long)
        mask[at, place] = 1
    return {
        "input_ids": ids.to(device, non_blocking=True),
        "attention_mask": mask.to(device, non_blocking=True),
    }
