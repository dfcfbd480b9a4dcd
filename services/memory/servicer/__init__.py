"""The RPCs of MemoryService, a file per part of the contract, put together into one servicer."""

from services.memory.servicer.servicer import MemoryServicer

__all__ = ["MemoryServicer"]
