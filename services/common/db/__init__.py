"""PostgreSQL for services: one pool, one transaction helper a kind of caller."""

from services.common.db.database import Connection, Database

__all__ = ["Connection", "Database"]
