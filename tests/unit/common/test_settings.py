"""Settings: frozen, described, secrets hidden, readable when wrong."""

import pytest
from pydantic import ValidationError

from services.common import settings
from services.common.errors import StartupError

ALL = [
    settings.ChassisSettings,
    settings.JobSettings,
    settings.ServiceSettings,
    settings.LlmSettings,
]


@pytest.mark.parametrize("cls", ALL)
def test_every_field_is_described(cls):
    for field in settings.describe(cls):
        assert field.description.endswith("."), field
        assert field.env.isupper()


def test_a_missing_value_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NIANLUN_SERVICE_DATABASE_DSN", raising=False)
    with pytest.raises(StartupError, match="NIANLUN_SERVICE_DATABASE_DSN"):
        settings.load(settings.ServiceSettings)


def test_a_bad_value_is_named_and_not_repeated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NIANLUN_METRICS_PORT", "hunter2")
    with pytest.raises(StartupError, match="NIANLUN_METRICS_PORT") as caught:
        settings.load(settings.ChassisSettings)
    assert "hunter2" not in str(caught.value)


def test_frozen_and_secret():
    made = settings.ServiceSettings(database_dsn="postgresql://u:hunter2@h/d")
    assert "hunter2" not in repr(made)
    assert "hunter2" not in repr(made.database())
    with pytest.raises(ValidationError):
        made.listen = "0.0.0.0:1"  # type: ignore[misc]


def test_secrets_are_marked():
    marked = {field.env for cls in ALL for field in settings.describe(cls) if field.secret}
    assert marked == {"NIANLUN_SERVICE_KEY", "NIANLUN_SERVICE_DATABASE_DSN", "LLM_API_KEY"}


def test_llm_is_configured_by_url_and_model():
    assert not settings.LlmSettings().configured
    assert settings.LlmSettings(base_url="http://x/v1", model="m").configured
