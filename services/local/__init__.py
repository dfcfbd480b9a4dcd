"""The local stack: an embedded PostgreSQL and all processes of the Procfile, under one owner."""
