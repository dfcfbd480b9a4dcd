"""Settings of the orchestrator, from the environment (prefix NIANLUN_ORCHESTRATOR_)."""

from __future__ import annotations

from pydantic import Field

from services.common.settings import JobSettings, LlmSettings, ServiceSettings, env_config


class FallbackLlmSettings(LlmSettings):
    """The second provider, asked when the first fails before its first token."""

    model_config = env_config("LLM_FALLBACK_")


class OrchestratorSettings(ServiceSettings):
    """Everything the orchestrator can be told from outside."""

    model_config = env_config("NIANLUN_ORCHESTRATOR_")

    listen: str = Field(default="127.0.0.1:50054", description="Address of the gRPC server.")
    memory_target: str = Field(
        default="127.0.0.1:50053", description="Address of the memory service."
    )
    retriever_target: str = Field(
        default="127.0.0.1:50052", description="Address of the retriever."
    )
    llm: LlmSettings = Field(
        default_factory=LlmSettings, description="The model that answers (prefix LLM_)."
    )
    fallback_llm: FallbackLlmSettings = Field(
        default_factory=FallbackLlmSettings,
        description="The model asked when the first one fails (prefix LLM_FALLBACK_).",
    )
    jobs: JobSettings = Field(
        default_factory=JobSettings, description="How background jobs run (prefix NIANLUN_JOBS_)."
    )
    default_collection: str = Field(
        default="",
        description="Collection searched when a request names none; empty: no retrieval then.",
    )
    redact: bool = Field(
        default=True,
        description="Replace personal data (identity, phone and card numbers, keys, addresses) in "
        "what the user says by its kind, before a model, a search or a log sees it. Memory stores "
        "no such data either way.",
    )
    run_timeout_s: float = Field(
        default=120.0, gt=0, description="Longest time of one run when the caller sets no deadline."
    )
    memory_timeout_s: float = Field(default=2.5, gt=0, description="Longest time to load memory.")
    retrieve_timeout_s: float = Field(
        default=5.0, gt=0, description="Longest time to search knowledge."
    )
    model_timeout_s: float = Field(
        default=60.0, gt=0, description="Longest silence of a model before a call is given up."
    )
    verify_timeout_s: float = Field(
        default=8.0, gt=0, description="Longest time to verify an answer."
    )
    save_timeout_s: float = Field(default=3.0, gt=0, description="Longest time to save the turn.")
    daily_tokens: int = Field(
        default=0,
        ge=0,
        description="Tokens of the answering model that a tenant may use a UTC day; 0: no limit. "
        "When they are used up, answers are made of extracts and flagged BUDGET_STOPPED.",
    )
    prompt_tokens: int = Field(
        default=12_000,
        ge=500,
        description="Token budget of a whole prompt: evidence and history get what its other parts "
        "leave.",
    )
    memory_tokens: int = Field(
        default=1_500, ge=64, description="Token budget of memory in a prompt."
    )
    evidence_tokens: int = Field(default=4_000, ge=200, description="Token budget of evidence.")
    history_tokens: int = Field(default=4_000, ge=100, description="Token budget of the history.")
    top_k: int = Field(default=8, ge=1, le=20, description="Passages put before the model.")
    max_rounds: int = Field(
        default=6, ge=1, le=20, description="Model calls with tools in one run."
    )
    max_tool_calls: int = Field(default=12, ge=1, le=64, description="Tool calls in one run.")
    compact_after: int = Field(
        default=40,
        ge=4,
        description="Messages of a session after which older ones become a summary.",
    )
    keep_messages: int = Field(
        default=16, ge=2, description="Latest messages that compaction leaves as they are."
    )
    lease_s: float = Field(
        default=30.0,
        gt=1,
        description="Time after which a run of a vanished process may be taken over.",
    )
    worker_concurrency: int = Field(default=4, ge=1, description="Background jobs at once.")
    retention_days: int = Field(
        default=30,
        ge=1,
        description="Days that runs with their events and prompts are kept, and the history of a "
        "session after its last turn.",
    )
