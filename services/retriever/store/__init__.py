"""SQL of the retriever, a module per thing. Every function runs inside a tenant transaction; the
tenant itself is never a caller's parameter: every statement names `TENANT`, which the connection
fills in, and row-level security compares it once more."""
