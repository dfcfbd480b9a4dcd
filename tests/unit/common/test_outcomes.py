"""How a failed attempt at a job goes on."""

import pytest

from services.common import errors
from services.common.jobs import Quarantine, Retry
from services.common.jobs.attempt import outcome_of


class _HttpError(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__("the user said something private")
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        (Retry("OVERLOADED", 3), "OVERLOADED", True),
        (errors.overloaded(2), "OVERLOADED", True),
        (errors.dependency_unavailable("embedder"), "DEPENDENCY_UNAVAILABLE", True),
        (errors.not_found("turn", "t"), "NOT_FOUND", False),
        (TimeoutError(), "DEADLINE_EXCEEDED", True),
        (ConnectionRefusedError(), "DEPENDENCY_UNAVAILABLE", True),
        (_HttpError(429), "DEPENDENCY_UNAVAILABLE", True),
        (_HttpError(503), "DEPENDENCY_UNAVAILABLE", True),
        (_HttpError(400), "INTERNAL", False),
        (ValueError("private"), "INTERNAL", False),
    ],
)
def test_outcomes(error: Exception, reason: str, retryable: bool):
    outcome = outcome_of(error)
    assert (outcome.reason, outcome.retryable, outcome.terminal) == (reason, retryable, False)
    assert "private" not in outcome.message


def test_w07_quarantine_is_terminal():
    outcome = outcome_of(Quarantine("MODEL_FAILED", "item 1 is unreadable"))
    assert outcome.terminal
    assert (outcome.reason, outcome.message) == ("MODEL_FAILED", "item 1 is unreadable")
