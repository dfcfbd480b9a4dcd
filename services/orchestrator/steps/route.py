"""route: which intent a message has."""

from __future__ import annotations

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator import router
from services.orchestrator.engine import Outcome
from services.orchestrator.intents import INTENTS
from services.orchestrator.turn import Turn


async def run(turn: Turn) -> Outcome:
    """Set the turn's intent; forced ones stay."""
    decided = router.route(turn.input)
    turn.intent, turn.route_reason = decided.intent, decided.reason
    forced = turn.input.intent != pb.INTENT_UNSPECIFIED
    return Outcome(
        counts={"intent": INTENTS[turn.intent].slug, "how": "forced" if forced else "routed"}
    )
