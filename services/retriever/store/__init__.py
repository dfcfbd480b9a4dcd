"""SQL of the retriever, a module per thing. Every function runs inside a tenant transaction; the
tenant itself is never a parameter: row-level security and `TENANT` supply it."""
