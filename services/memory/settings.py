"""Settings of the memory service and its worker."""

from __future__ import annotations

from pydantic import Field

from services.common.settings import JobSettings, LlmSettings, ServiceSettings, env_config


class MemorySettings(ServiceSettings):
    """Memory service: addresses, limits, extraction, costs."""

    model_config = env_config("NIANLUN_MEMORY_")

    listen: str = Field(
        default="127.0.0.1:50053",
        description="Address and port to serve on; port 0 takes any free one.",
    )
    embedder_target: str = Field(
        default="127.0.0.1:50051", description="Address of the embedder service."
    )
    embed_model: str = Field(
        default="", description="Embedding model to ask for; empty takes the embedder's default."
    )
    embed_timeout_s: float = Field(
        default=2.0,
        gt=0,
        description="Longest wait for a query vector in seconds; later, words decide alone.",
    )
    embed_batch: int = Field(
        default=32, ge=1, le=256, description="Texts embedded in one background call."
    )
    embed_turns: bool = Field(
        default=True,
        description="Embed raw turns in the background, so that SearchTurns finds them by meaning.",
    )
    extract_timeout_s: float = Field(
        default=60.0,
        gt=0,
        description="Longest extraction or summary call of the language model in seconds.",
    )
    extract_batch: int = Field(
        default=8, ge=1, le=32, description="Most turns of one session digested in one call."
    )
    extract_attempts: int = Field(
        default=3,
        ge=1,
        le=10,
        description="Unreadable answers to one turn before it is quarantined.",
    )
    freshness_wait_s: float = Field(
        default=2.0, ge=0, description="Longest wait of LoadMemory for at_least, in seconds."
    )
    fresh_turns: int = Field(
        default=40, ge=1, le=500, description="Most undigested turns that LoadMemory looks at."
    )
    index_items: int = Field(
        default=20_000, ge=100, description="Newest notes or turns of one user that are searched."
    )
    cache_users: int = Field(
        default=2_000, ge=1, description="Users whose search index is kept in memory."
    )
    cache_items: int = Field(
        default=400_000, ge=1, description="Notes and turns kept in memory over all users."
    )
    cache_s: float = Field(
        default=60.0,
        gt=0,
        description="Seconds after its last use that a user's search index leaves memory; what is"
        " erased by one process has left all others after this and a quarter more.",
    )
    prompt_price: float = Field(
        default=0.0, ge=0, description="Cost of a million prompt tokens, for usage reports."
    )
    completion_price: float = Field(
        default=0.0, ge=0, description="Cost of a million completion tokens, for usage reports."
    )
    retention_every_s: float = Field(
        default=86_400.0, gt=0, description="Seconds between two purges of a tenant with retention."
    )
    worker_in_process: bool = Field(
        default=False,
        description="Run the worker inside the service process (small set-ups and tests).",
    )
    llm: LlmSettings = Field(
        default_factory=LlmSettings, description="The language model (prefix LLM_)."
    )
    jobs: JobSettings = Field(
        default_factory=JobSettings, description="Background work (prefix NIANLUN_JOBS_)."
    )
