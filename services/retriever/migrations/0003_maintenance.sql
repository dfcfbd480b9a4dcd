-- Whoever builds an index must own its table. So that no service needs the connection of the owner
-- of everything, the one table with HNSW indexes belongs to a role of its own. The role has no rows
-- to see (row-level security is forced) and nothing else; the retriever's worker connects as it.
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'nianlun_maintenance') THEN
        BEGIN
            CREATE ROLE nianlun_maintenance LOGIN NOINHERIT;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END IF;
    -- An owner without superuser rights must belong to the role, to hand over the table now and to
    -- change it in later steps.
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('GRANT nianlun_maintenance TO %I', current_user);
    END IF;
END;
$$;
GRANT USAGE, CREATE ON SCHEMA retriever TO nianlun_maintenance;
ALTER TABLE retriever.vectors OWNER TO nianlun_maintenance;
