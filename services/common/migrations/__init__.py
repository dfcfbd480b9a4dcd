"""Migrations: numbered plain SQL, checksummed, run by the database's owner."""
