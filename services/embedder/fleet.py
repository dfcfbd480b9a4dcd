"""Loads the models of the settings, gives each device its worker, and warms everything up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.common import logs
from services.common.errors import StartupError
from services.embedder import registry
from services.embedder.catalogue import Catalogue, ServedModel
from services.embedder.compression import codec_of
from services.embedder.engine import EmbeddingEngine, Engine, PairEngine
from services.embedder.front import Front
from services.embedder.model import MODEL_FAULTS, Calibration, EmbeddingModel, PairModel
from services.embedder.rerankers.base import PairReranker, Reranker
from services.embedder.rerankers.late_interaction import ANCHORS, LateInteractionReranker
from services.embedder.scheduler.types import Limits
from services.embedder.settings import EmbedderSettings, RerankerSettings
from services.embedder.warmup import warm_up
from services.embedder.worker import DeviceWorker, Observer


class Fleet:
    """Every model of one process and the workers that run them."""

    def __init__(self, settings: EmbedderSettings, front: Front, observer: Observer) -> None:
        self._settings = settings
        self._front = front
        self._observer = observer
        self.workers: list[DeviceWorker] = []
        self._models: list[EmbeddingModel] = []
        self._pairs: dict[str, PairModel] = {}
        self.catalogue = Catalogue((), ())

    async def start(self) -> None:
        """Load, warm up and start. Raises StartupError."""
        ids = [served.id for served in (*self._settings.models, *self._settings.rerankers)]
        if len(set(ids)) != len(ids):
            raise StartupError("NIANLUN_EMBEDDER_MODELS and _RERANKERS name one id twice.")
        await asyncio.to_thread(self._load)
        engines: dict[str, list[Engine]] = {}
        for model in self._models:
            engines.setdefault(_worker_name(model), []).append(EmbeddingEngine(model))
        for pair in self._pairs.values():
            engines.setdefault(_worker_name(pair), []).append(PairEngine(pair))
        everything = [e for group in engines.values() for e in group]
        sick = await asyncio.to_thread(self._warm_up, everything)
        workers = {
            name: DeviceWorker(
                name,
                {engine.lane: engine for engine in group},
                self._limits(name),
                self._front.deliver,
                self._observer,
                sick=sick,
            )
            for name, group in engines.items()
        }
        self.workers = list(workers.values())
        for worker in self.workers:
            worker.start()
        served = [
            ServedModel(model, workers[_worker_name(model)], codec_of(model.info))
            for model in self._models
        ]
        rerankers = [self._reranker(one, served, workers) for one in self._settings.rerankers]
        self.catalogue = Catalogue(served, rerankers)

    async def stop(self) -> None:
        """End the threads and free the models."""
        # A provider's thread may be waiting to try again: closing it first ends the wait.
        everything: list[EmbeddingModel | PairModel] = [*self._models, *self._pairs.values()]
        for model in everything:
            if model.info.device == "remote":
                model.close()
        for worker in self.workers:
            await worker.stop()
        for model in everything:
            if model.info.device != "remote":
                model.close()

    async def ready(self) -> str | None:
        """Why the fleet is not ready, or None. The default model alone decides: whoever asks for
        another is told about that one, and `ListModels` shows it.
        """
        default = self.catalogue.models[0]
        return default.worker.unready(self._settings.stall_s, f"embed:{default.model.info.id}")

    def _load(self) -> None:
        for at, model in enumerate(self._settings.models):
            self._models.append(registry.load_model(model, self._settings, needed=at == 0))
        for reranker in self._settings.rerankers:
            if reranker.backend != "late-interaction":
                self._pairs[reranker.id] = registry.load_pair_model(reranker)

    def _warm_up(self, engines: Sequence[Engine]) -> set[str]:
        """Runs each engine once; those that begin sick. The default model must be well, and so
        must what runs here: a provider that is away comes back without anybody's doing.
        """
        remote = {f"embed:{m.info.id}" for m in self._models[1:] if m.info.device == "remote"}
        remote |= {f"rerank:{m.info.id}" for m in self._pairs.values() if m.info.device == "remote"}
        # A reranker has not been asked yet and may take its time to say no; its thread asks it.
        sick = {
            engine.lane
            for engine in engines
            if engine.lane in remote and not self._answered(engine.lane)
        }
        for engine in engines:
            if engine.lane in remote:
                continue
            try:
                good = engine.probe()
            except MODEL_FAULTS as error:
                raise StartupError(
                    f"{engine.lane} failed its first forward pass: {error}"
                ) from error
            if not good:
                raise StartupError(f"{engine.lane} gave an unusable result in its first pass.")
        if self._settings.warm_up:
            for model in self._models:
                warm_up(model, self._limits(_worker_name(model)))
        logs.get(__name__).info("models_ready", engines=[e.lane for e in engines], sick=len(sick))
        return sick

    def _answered(self, lane: str) -> bool:
        """Whether a provider has given a vector when its model was loaded."""
        return any(m.info.dimensions > 0 for m in self._models if f"embed:{m.info.id}" == lane)

    def _limits(self, worker: str) -> Limits:
        settings = self._settings
        gpu = worker.startswith("cuda")
        return Limits(
            batch_tokens=settings.gpu_batch_tokens if gpu else settings.batch_tokens,
            batch_items=settings.batch_items * (8 if gpu else 1),
            queue_tokens=settings.queue_tokens,
            age_limit_s=settings.age_limit_s,
            # A GPU is only full with many more tokens: below that, padding costs nothing.
            fill_tokens=8_192 if gpu else 256,
        )

    def _reranker(
        self,
        settings: RerankerSettings,
        served: Sequence[ServedModel],
        workers: dict[str, DeviceWorker],
    ) -> Reranker:
        if settings.backend != "late-interaction":
            pair = self._pairs[settings.id]
            return PairReranker(pair, workers[_worker_name(pair)], self._front)
        for one in served:
            if settings.embedder in ("", one.model.info.id):
                anchors = Calibration(*settings.calibration) if settings.calibration else ANCHORS
                return LateInteractionReranker(settings.id, one, self._front, anchors)
        raise StartupError(
            f"The reranker {settings.id!r} uses the model {settings.embedder!r}, which is not"
            " served."
        )


def _worker_name(model: EmbeddingModel | PairModel) -> str:
    """Models of one device share its thread; a remote model has one of its own."""
    info = model.info
    return f"remote:{info.id}" if info.device == "remote" else info.device
