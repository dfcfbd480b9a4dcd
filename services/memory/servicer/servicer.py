"""The whole servicer: the groups side by side."""

from __future__ import annotations

from nianlun.memory.v1 import memory_pb2_grpc
from services.memory.servicer.admin import AdminRpcs
from services.memory.servicer.episodes import EpisodeRpcs
from services.memory.servicer.lifecycle import LifecycleRpcs
from services.memory.servicer.profile import ProfileRpcs
from services.memory.servicer.readings import ReadingRpcs
from services.memory.servicer.turns import TurnRpcs


class MemoryServicer(
    TurnRpcs,
    ProfileRpcs,
    EpisodeRpcs,
    ReadingRpcs,
    LifecycleRpcs,
    AdminRpcs,
    memory_pb2_grpc.MemoryServiceServicer,
):
    """nianlun.memory.v1.MemoryService. Each group has its own file; they share nothing but
    `deps`."""
