"""What tests stand on: one PostgreSQL, one stack of services, one scriptable language model."""
