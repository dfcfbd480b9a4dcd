"""Settings of the gateway, from the environment (prefix NIANLUN_GATEWAY_)."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from services.common.settings import MIB, ChassisSettings, env_config


class GatewaySettings(BaseSettings):
    """Addresses and limits of the gateway. It has no database."""

    model_config = env_config("NIANLUN_GATEWAY_")

    listen: str = Field(
        default="127.0.0.1:8080", description="Address and port to serve on; port 0 takes any."
    )
    embedder_target: str = Field(
        default="127.0.0.1:50051", description="Address of the embedder service."
    )
    retriever_target: str = Field(
        default="127.0.0.1:50052", description="Address of the retriever service."
    )
    memory_target: str = Field(
        default="127.0.0.1:50053", description="Address of the memory service."
    )
    orchestrator_target: str = Field(
        default="127.0.0.1:50054", description="Address of the orchestrator service."
    )
    max_body_bytes: int = Field(
        default=20 * MIB, ge=1024, description="Largest request body accepted, in bytes."
    )
    timeout_s: float = Field(
        default=120.0, gt=0, description="Longest request in seconds, streams included."
    )
    cors_origins: str = Field(
        default="",
        description="Comma-separated origins that browsers may call from; off when empty.",
    )
    chassis: ChassisSettings = Field(
        default_factory=ChassisSettings, description="Settings shared by all processes."
    )

    @property
    def origins(self) -> list[str]:
        """The allowed origins."""
        return [origin.strip() for origin in self.cors_origins.split(",") if origin.strip()]
