"""Settings of the retriever, from the environment (prefix NIANLUN_RETRIEVER_)."""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from services.common.settings import JobSettings, ServiceSettings


class RetrieverSettings(ServiceSettings):
    """Everything the retriever and its worker can be told from outside."""

    model_config = SettingsConfigDict(
        env_prefix="NIANLUN_RETRIEVER_", frozen=True, extra="ignore", populate_by_name=True
    )

    listen: str = Field("127.0.0.1:50052", description="Address of the gRPC server.")
    embedder_target: str = Field("127.0.0.1:50051", description="Address of the embedder.")
    default_model: str = Field(
        "multilingual-e5-small",
        description="Model of a collection that names none while the embedder cannot be asked.",
    )
    embed_timeout_s: float = Field(
        2.0,
        gt=0,
        description="Longest wait for a question's vector; then lexical legs answer.",
    )
    worker_in_process: bool = Field(
        False, description="Run the background worker inside the service instead of beside it."
    )
    worker_concurrency: int = Field(2, ge=1, le=32, description="Background jobs at once.")
    jobs: JobSettings = Field(
        default_factory=JobSettings,
        description="How background work is leased and retried (prefix NIANLUN_JOBS_).",
    )
    threads: int = Field(
        4, ge=1, le=64, description="Threads for reading documents and building indexes."
    )
    cache_tokens: int = Field(
        2_000_000, ge=1_000, description="Tokens of single-document indexes kept in memory."
    )
    cache_s: float = Field(
        60.0,
        gt=0,
        description="Seconds after its last use that a document's index leaves memory; what is"
        " erased by one process has left all others after this and a quarter more.",
    )
    promote_at: int = Field(
        10_000, ge=100, description="Vectors of a collection from which it gets an HNSW index."
    )
    maintenance_dsn: SecretStr | None = Field(
        None,
        description="DSN of role nianlun_maintenance, which builds HNSW indexes; without it all"
        " dense searches stay exact.",
    )
    index_memory_mb: int = Field(
        512, ge=64, description="maintenance_work_mem in MB while an HNSW index is built."
    )
