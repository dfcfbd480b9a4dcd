"""PostgreSQL for services: one pool, one transaction helper a kind of caller."""

from services.common.db.connection import TENANT, Connection
from services.common.db.database import Database

__all__ = ["TENANT", "Connection", "Database"]
