-- Schema auth: tenants, keys, the one function services may call, and the helpers that every
-- service's own migrations use. Runs as the owner of the database.

CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;

-- pgvector before 0.8.6 can corrupt its indexes.
DO $$
DECLARE
    found text := (SELECT extversion FROM pg_extension WHERE extname = 'vector');
BEGIN
    IF string_to_array(split_part(found, '-', 1), '.')::int[] < ARRAY[0, 8, 6] THEN
        RAISE EXCEPTION 'pgvector % is too old, 0.8.6 or newer is needed', found
            USING HINT = 'Install a newer pgvector and run ALTER EXTENSION vector UPDATE.';
    END IF;
END;
$$;

CREATE SCHEMA IF NOT EXISTS auth;

-- One login role a service, never an owner, never above row-level security. Roles belong to the
-- whole cluster: another database may be creating them at this very moment.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['nianlun_embedder', 'nianlun_retriever', 'nianlun_memory',
                                  'nianlun_orchestrator'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I LOGIN NOINHERIT', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA auth TO %I', wanted);
    END LOOP;
END;
$$;

CREATE TABLE IF NOT EXISTS auth.tenants (
    tenant_id   text PRIMARY KEY CHECK (tenant_id <> '' AND length(tenant_id) <= 256),
    name        text NOT NULL DEFAULT '',
    create_time timestamptz NOT NULL DEFAULT now(),
    disable_time timestamptz
);

-- A key is random, so its hash identifies it; only the hash is stored.
CREATE TABLE IF NOT EXISTS auth.keys (
    tenant_id   text NOT NULL REFERENCES auth.tenants (tenant_id) ON DELETE CASCADE,
    key_id      uuid NOT NULL DEFAULT gen_random_uuid(),
    key_hash    bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    name        text NOT NULL DEFAULT '',
    scopes      text[] NOT NULL
                CHECK (scopes <@ ARRAY['read', 'write', 'admin', 'service'] AND cardinality(scopes) > 0),
    create_time timestamptz NOT NULL DEFAULT now(),
    expire_time timestamptz,
    revoke_time timestamptz,
    PRIMARY KEY (tenant_id, key_id)
);
CREATE INDEX IF NOT EXISTS keys_by_hash ON auth.keys (key_hash);

-- Keys of scope service belong to this tenant and act for the one that a call names.
INSERT INTO auth.tenants (tenant_id, name) VALUES ('nianlun:service', 'background work')
ON CONFLICT DO NOTHING;

-- Only the owner reads these two tables, even where the owner is no superuser and FORCE applies.
ALTER TABLE auth.tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE auth.tenants FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS owner_only ON auth.tenants;
CREATE POLICY owner_only ON auth.tenants TO CURRENT_USER USING (true) WITH CHECK (true);
ALTER TABLE auth.keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE auth.keys FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS owner_only ON auth.keys;
CREATE POLICY owner_only ON auth.keys TO CURRENT_USER USING (true) WITH CHECK (true);

-- The one thing a service may ask of auth: to whom does the key with this hash belong?
-- Unknown, revoked and expired keys and keys of disabled tenants give no row.
CREATE OR REPLACE FUNCTION auth.verify(p_key_hash bytea)
RETURNS TABLE (tenant_id text, key_id uuid, scopes text[], expire_time timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT k.tenant_id, k.key_id, k.scopes, k.expire_time
    FROM auth.keys AS k
    JOIN auth.tenants AS t ON t.tenant_id = k.tenant_id
    WHERE k.key_hash = p_key_hash
      AND k.revoke_time IS NULL
      AND (k.expire_time IS NULL OR k.expire_time > now())
      AND t.disable_time IS NULL
$$;
REVOKE ALL ON FUNCTION auth.verify(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION auth.verify(bytea)
    TO nianlun_embedder, nianlun_retriever, nianlun_memory, nianlun_orchestrator;

-- SELECT auth.protect('memory.turns'): row-level security by tenant, also for the table's owner.
-- Without a tenant set, no row is visible. Privileges are granted by the migration that calls this.
CREATE OR REPLACE FUNCTION auth.protect(p_table regclass) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', p_table);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', p_table);
    EXECUTE format('DROP POLICY IF EXISTS tenant_isolation ON %s', p_table);
    -- After a transaction the setting is an empty string, not NULL: both must mean "no tenant".
    EXECUTE format(
        'CREATE POLICY tenant_isolation ON %s'
        ' USING (tenant_id = nullif(current_setting(''nianlun.tenant_id'', true), ''''))'
        ' WITH CHECK (tenant_id = nullif(current_setting(''nianlun.tenant_id'', true), ''''))',
        p_table);
END;
$$;
REVOKE ALL ON FUNCTION auth.protect(regclass) FROM PUBLIC;

-- SELECT auth.create_requests_table('memory'): memory.requests, the stored answers of mutating
-- RPCs by (tenant, rpc, request_id), usable by role nianlun_memory.
--   rpc           full name of the request message, e.g. nianlun.memory.v1.AppendTurnRequest
--   request_hash  SHA-256 of the request without its request_id
--   response      serialised response; NULL only inside the transaction that is doing the work
--   subject       whom the answer is about (a user_id or ''), so that an erasure finds it
-- A SQL function that writes in one go inserts the row first (ON CONFLICT DO NOTHING) and, when
-- nothing was inserted, returns what is stored.
CREATE OR REPLACE FUNCTION auth.create_requests_table(p_schema text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'CREATE TABLE IF NOT EXISTS %I.requests (
            tenant_id    text NOT NULL,
            rpc          text NOT NULL,
            request_id   text NOT NULL,
            request_hash bytea NOT NULL,
            response     bytea,
            subject      text NOT NULL DEFAULT '''',
            create_time  timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (tenant_id, rpc, request_id)
        )', p_schema);
    EXECUTE format(
        'CREATE INDEX IF NOT EXISTS requests_by_age ON %I.requests (tenant_id, create_time)',
        p_schema);
    EXECUTE format(
        'CREATE INDEX IF NOT EXISTS requests_by_subject ON %I.requests (tenant_id, subject)
         WHERE subject <> ''''', p_schema);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I.requests TO %I',
                   p_schema, 'nianlun_' || p_schema);
    PERFORM auth.protect(format('%I.requests', p_schema)::regclass);
END;
$$;
REVOKE ALL ON FUNCTION auth.create_requests_table(text) FROM PUBLIC;
