"""Background work: queued by procrastinate in the caller's transaction, shown by a status row.

``Jobs`` is the facade; ``JobRun`` is what a handler gets; ``Retry`` and ``Quarantine`` are what it
raises to say how a failed attempt should go on.
"""

from services.common.jobs.attempt import JobRun
from services.common.jobs.facade import Jobs
from services.common.jobs.model import (
    Handler,
    JobCancelled,
    JobRecord,
    LeaseLost,
    OnFailed,
    Quarantine,
    Retry,
)

__all__ = [
    "Handler",
    "JobCancelled",
    "JobRecord",
    "JobRun",
    "Jobs",
    "LeaseLost",
    "OnFailed",
    "Quarantine",
    "Retry",
]
