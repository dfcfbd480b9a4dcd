"""Settings: frozen, read from the environment, secrets hidden, every field described.

``docs/configuration.md`` is generated from these classes by way of ``describe``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.common.errors import StartupError

S = TypeVar("S", bound=BaseSettings)

MIB = 1024 * 1024


def env_config(prefix: str) -> SettingsConfigDict:
    """The configuration every settings class uses: an environment prefix, frozen, no extras."""
    return SettingsConfigDict(
        env_prefix=prefix, frozen=True, extra="ignore", env_ignore_empty=True, populate_by_name=True
    )


class ChassisSettings(BaseSettings):
    """What every process shares: logging, telemetry, limits, auth caching, shutdown, TLS."""

    model_config = env_config("NIANLUN_")

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Lowest level that is logged. User text never appears at INFO."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="One JSON object a line, or coloured text for a terminal."
    )
    otlp_endpoint: str | None = Field(
        default=None,
        description="OTLP gRPC endpoint for traces, e.g. http://localhost:4317. Off when unset.",
    )
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of this process for Prometheus (/metrics) and probes (/healthz). Off when"
        " unset.",
    )
    metrics_host: str = Field(default="127.0.0.1", description="Address that port is bound to.")
    auth_cache_s: float = Field(
        default=30.0,
        ge=0,
        description="Seconds a verified key is cached: a revocation takes at most this long.",
    )
    auth_outage_s: float = Field(
        default=300.0,
        ge=0,
        description="Seconds a verified key stays good while the database is unreachable.",
    )
    max_message_bytes: int = Field(
        default=16 * MIB, ge=1024, description="Largest gRPC message accepted, in bytes."
    )
    default_deadline_s: float = Field(
        default=60.0, gt=0, description="Deadline in seconds of a unary call whose caller set none."
    )
    deadline_margin_s: float = Field(
        default=0.05,
        ge=0,
        description="Seconds kept back from the deadline that is handed downstream.",
    )
    max_connection_age_s: float = Field(
        default=300.0,
        gt=0,
        description="Seconds after which clients reconnect, so that new replicas get traffic.",
    )
    max_connection_age_grace_s: float = Field(
        default=600.0,
        gt=0,
        description="Seconds a stream may outlive that age; longer than the longest stream.",
    )
    readiness_interval_s: float = Field(
        default=2.0, gt=0, description="Seconds between two rounds of readiness checks."
    )
    readiness_timeout_s: float = Field(
        default=2.0,
        gt=0,
        description="Seconds one readiness check may take before it counts as failed.",
    )
    drain_s: float = Field(
        default=0.5,
        ge=0,
        description="Seconds between reporting NOT_SERVING and refusing new calls at shutdown.",
    )
    grace_s: float = Field(
        default=20.0, ge=0, description="Seconds calls in flight may take to finish at shutdown."
    )
    service_key: SecretStr | None = Field(
        default=None,
        description="Key of scope service with which background work acts for the tenant of a job.",
    )
    tls_cert_file: Path | None = Field(
        default=None, description="PEM certificate chain of the server. Plain text when unset."
    )
    tls_key_file: Path | None = Field(default=None, description="PEM private key of the server.")
    tls_ca_file: Path | None = Field(
        default=None,
        description="PEM certificate authority that clients trust; switches outgoing calls to TLS.",
    )


class JobSettings(BaseSettings):
    """How background work is leased and retried."""

    model_config = env_config("NIANLUN_JOBS_")

    concurrency: int = Field(default=4, ge=1, le=64, description="Jobs one worker runs at a time.")
    poll_s: float = Field(
        default=1.0,
        gt=0,
        description="Seconds between looks at the queue for work that became due.",
    )
    heartbeat_s: float = Field(
        default=5.0, gt=0, description="Seconds between heartbeats of a worker."
    )
    lease_s: float = Field(
        default=30.0,
        gt=0,
        description="Seconds without a heartbeat after which a worker's jobs are given to others.",
    )
    stalled_check_s: float = Field(
        default=10.0, gt=0, description="Seconds between searches for jobs of dead workers."
    )
    backoff_base_s: float = Field(
        default=1.0,
        ge=0,
        description="Seconds before the first retry; doubles with each further one.",
    )
    backoff_max_s: float = Field(
        default=60.0, gt=0, description="Longest wait between two attempts, in seconds."
    )
    max_failures: int = Field(
        default=5,
        ge=1,
        description="Failed attempts until a job is FAILED, those whose worker died included; busy"
        " dependencies do not count.",
    )
    retry_window_s: float = Field(
        default=86_400.0,
        gt=0,
        description="Seconds in which a retryable failure (429, 5xx, timeout) never ends a job.",
    )
    keep_days: int = Field(
        default=30, ge=1, description="Days an ended job can still be listed and replayed."
    )
    shutdown_s: float = Field(
        default=10.0,
        ge=0,
        description="Seconds running jobs may take to finish when a worker stops.",
    )
    watch_poll_s: float = Field(
        default=0.5, gt=0, description="Seconds between looks at the status row of a watched job."
    )


@dataclass(frozen=True)
class DatabaseSettings:
    """How one process reaches the database. Times in seconds."""

    dsn: SecretStr
    pool_min: int = 1
    pool_max: int = 8
    pool_timeout_s: float = 5.0
    statement_timeout_s: float = 30.0
    application_name: str = "nianlun"
    prepared_statements: bool = True
    citus: bool = False


class ServiceSettings(BaseSettings):
    """What a service with a database needs. Subclasses set their own prefix and default port."""

    model_config = env_config("NIANLUN_SERVICE_")

    listen: str = Field(
        default="127.0.0.1:0",
        description="Address and port to serve on; port 0 takes any free one.",
    )
    database_dsn: SecretStr = Field(
        description="PostgreSQL connection string of the service's own role."
    )
    pool_min: int = Field(default=1, ge=0, description="Database connections kept open.")
    pool_max: int = Field(default=8, ge=1, description="Most database connections of the process.")
    pool_timeout_s: float = Field(
        default=5.0,
        gt=0,
        description="Seconds to wait for a free connection before answering UNAVAILABLE.",
    )
    statement_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="Longest statement in seconds where the caller's deadline is not shorter.",
    )
    prepared_statements: bool = Field(
        default=True, description="Switch off behind pgbouncer in transaction mode."
    )
    citus: bool = Field(
        default=False,
        description="The database is the coordinator of a Citus cluster.",
    )
    chassis: ChassisSettings = Field(
        default_factory=ChassisSettings,
        description="Settings shared by all services (prefix NIANLUN_).",
    )

    def database(self, application_name: str = "nianlun") -> DatabaseSettings:
        """The database part, as ``Database`` takes it."""
        return DatabaseSettings(
            dsn=self.database_dsn,
            pool_min=self.pool_min,
            pool_max=self.pool_max,
            pool_timeout_s=self.pool_timeout_s,
            statement_timeout_s=self.statement_timeout_s,
            application_name=application_name,
            prepared_statements=self.prepared_statements,
            citus=self.citus,
        )


class LlmSettings(BaseSettings):
    """An OpenAI-compatible chat model. Without base_url and model the services do without one."""

    model_config = env_config("LLM_")

    base_url: str | None = Field(
        default=None,
        description="Base URL of an OpenAI-compatible API, e.g. https://host/v1.",
    )
    api_key: SecretStr | None = Field(default=None, description="Key of that API.")
    model: str | None = Field(default=None, description="Model name to ask for.")
    timeout_s: float = Field(
        default=60.0,
        gt=0,
        description="Longest model call in seconds where the deadline is not shorter.",
    )

    @property
    def configured(self) -> bool:
        """True when there is a model to call."""
        return bool(self.base_url and self.model)


@dataclass(frozen=True)
class SettingField:
    """One line of the configuration reference. ``default`` is None where a value is required."""

    env: str
    type: str
    default: str | None
    description: str
    secret: bool


def describe(cls: type[BaseSettings]) -> list[SettingField]:
    """All fields of a settings class but nested settings classes, which have their own list."""
    prefix = str(cls.model_config.get("env_prefix", ""))
    fields = []
    for name, info in cls.model_fields.items():
        annotation = info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseSettings):
            continue
        default = info.get_default(call_default_factory=False)
        text = None if info.is_required() else ("" if default is None else str(default))
        kind = getattr(annotation, "__name__", None) if isinstance(annotation, type) else None
        type_text = (kind or str(annotation)).replace("typing.", "").replace("pydantic.types.", "")
        alias = info.validation_alias
        env = alias if isinstance(alias, str) else f"{prefix}{name}".upper()
        fields.append(
            SettingField(
                env=env,
                type=type_text.replace("pathlib._local.", "").replace("pathlib.", ""),
                default=text,
                description=info.description or "",
                secret="SecretStr" in type_text,
            )
        )
    return fields


def load(cls: type[S]) -> S:
    """Read settings from the environment; a missing or bad one is a StartupError that names it."""
    try:
        return cls()
    except ValidationError as error:
        prefix = str(cls.model_config.get("env_prefix", ""))
        lines = [
            f"  {prefix}{'__'.join(str(part) for part in item['loc'])}".upper() + f": {item['msg']}"
            for item in error.errors(include_input=False)
        ]
        raise StartupError(
            "The configuration is incomplete or wrong:\n" + "\n".join(lines)
        ) from None
