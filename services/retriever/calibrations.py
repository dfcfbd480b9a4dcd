"""Which calibration is in force for a model: the tenant's own, the shipped or a general one."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from services.common import context
from services.common.db import Database
from services.common.errors import DomainError
from services.retriever.domain import InForce
from services.retriever.embedding import Embedder
from services.retriever.store import calibrations as store
from services.search import calibration as shipped
from services.search.calibration import Calibration
from services.search.fitting import EXACT_AT, UNRELATED_AT, anchors

_TTL_S: Final = 10.0
_MAX_CACHED: Final = 2_000


class Calibrations:
    """Looks calibrations up; keeps answers for some seconds."""

    def __init__(self, db: Database, embedder: Embedder) -> None:
        self._db = db
        self._embedder = embedder
        self._cache: OrderedDict[tuple[str, str], tuple[float, InForce]] = OrderedDict()

    async def of(self, model_ids: Sequence[str]) -> dict[str, InForce]:
        """What is in force for these models and the current tenant."""
        tenant_id = context.current_caller().tenant_id
        now = time.monotonic()
        out: dict[str, InForce] = {}
        missing: list[str] = []
        for model_id in dict.fromkeys(model_ids):
            cached = self._cache.get((tenant_id, model_id))
            if cached is not None and cached[0] > now:
                out[model_id] = cached[1]
            else:
                missing.append(model_id)
        if missing:
            async with self._db.tenant() as conn:
                stored = await store.get_many(conn, missing)
            for model_id in missing:
                found = stored.get(model_id) or await self._shipped(model_id)
                out[model_id] = found
                self._cache[(tenant_id, model_id)] = (now + _TTL_S, found)
            while len(self._cache) > _MAX_CACHED:
                self._cache.popitem(last=False)
        return out

    def forget(self, tenant_id: str, model_id: str) -> None:
        """Drops a cached answer after a new calibration."""
        self._cache.pop((tenant_id, model_id), None)

    async def _shipped(self, model_id: str) -> InForce:
        known = shipped.shipped(model_id)
        if known is not None:
            return InForce(known, fitted=True)
        general = shipped.SHIPPED[shipped.DEFAULT_MODEL]
        # The shipped gate was fitted on that model's token vectors; those of others are unknown.
        values = vars(general) | {
            "model_id": model_id, "dense_low": 0.2, "dense_high": 0.8, "gate": {},
        }  # fmt: skip
        try:
            for info in await self._embedder.models():
                if info.model_id == model_id and info.exact > info.unrelated:
                    # The embedder's own anchors for this model, where they lie for the shipped one.
                    values["dense_low"], values["dense_high"] = anchors(
                        (info.unrelated, UNRELATED_AT), (info.exact, EXACT_AT)
                    )
                    return InForce(Calibration(**values), fitted=True)
        except DomainError:
            # The embedder is away; the general anchors serve until the answer expires.
            pass
        return InForce(Calibration(**values), fitted=False)
