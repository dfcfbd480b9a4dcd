"""SQL of the memory service, a file per kind of data. Every statement runs in a tenant transaction
(row-level security adds the tenant) and names the user by equality."""
