-- Statements that a database which spreads tenants over servers (Citus) can run, without which plain
-- PostgreSQL loses nothing: each names its tenant, what changes a row holds no function whose value
-- may differ from server to server, and the tenant is set by SET LOCAL, which Citus passes on.

-- Takes the user's row lock and returns the user's new position.
CREATE OR REPLACE FUNCTION memory.advance_user(p_user text, p_zone text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_tenant text := current_setting('nianlun.tenant_id');
    v_next bigint := nextval('memory.positions');
    v_position bigint;
BEGIN
    INSERT INTO memory.users AS u (tenant_id, user_id, position, index_version, time_zone)
    VALUES (v_tenant, p_user, v_next, nextval('memory.positions'), p_zone)
    ON CONFLICT (tenant_id, user_id) DO UPDATE
        SET position = greatest(u.position, excluded.position), time_zone = excluded.time_zone
    RETURNING u.position INTO v_position;
    IF v_position <> v_next THEN
        -- Somebody with a later number held the row first: the number to use is one taken after.
        v_position := nextval('memory.positions');
        UPDATE memory.users AS u SET position = v_position
        WHERE u.tenant_id = v_tenant AND u.user_id = p_user;
    END IF;
    RETURN v_position;
END;
$$;

-- The searchable state of a user changed: the new version, also where the user is unknown.
CREATE OR REPLACE FUNCTION memory.bump_index(p_tenant text, p_user text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_version bigint := nextval('memory.positions');
BEGIN
    UPDATE memory.users AS u SET index_version = v_version
    WHERE u.tenant_id = p_tenant AND u.user_id = p_user;
    RETURN v_version;
END;
$$;

-- As in 0004.
CREATE OR REPLACE FUNCTION memory.append_turns(p_turns jsonb, p_wait boolean)
RETURNS TABLE (busy boolean, replayed boolean, request_hash bytea, receipt jsonb)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    t jsonb;
    v_tenant text;
    v_user text;
BEGIN
    FOR t IN SELECT e.value FROM jsonb_array_elements(p_turns) WITH ORDINALITY AS e ORDER BY e.ordinality LOOP
        IF v_tenant IS DISTINCT FROM t ->> 'tenant' THEN
            v_tenant := t ->> 'tenant';
            EXECUTE format('SET LOCAL nianlun.tenant_id = %L', v_tenant);
        END IF;
        v_user := t ->> 'user';
        IF NOT p_wait THEN
            PERFORM 1 FROM memory.users AS u WHERE u.tenant_id = v_tenant AND u.user_id = v_user
                FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                PERFORM 1 FROM memory.users AS u
                    WHERE u.tenant_id = v_tenant AND u.user_id = v_user;
                IF FOUND THEN
                    busy := true; replayed := false; request_hash := NULL; receipt := NULL;
                    RETURN NEXT;
                    CONTINUE;
                END IF;
            END IF;
        END IF;
        SELECT false, a.replayed, a.request_hash, a.receipt
        INTO busy, replayed, request_hash, receipt
        FROM memory.append_turn(
            t ->> 'rpc', t ->> 'request_id', decode(t ->> 'hash', 'hex'), v_user, t ->> 'session',
            (t ->> 'turn_id')::uuid, t -> 'messages', (t ->> 'event_time')::timestamptz, t ->> 'zone',
            string_to_array(t ->> 'flags', E'\n'), t -> 'metadata', t ->> 'tok_version',
            string_to_array(t ->> 'terms', E'\n'), t ->> 'lock', t ->> 'dedupe'
        ) AS a;
        RETURN NEXT;
    END LOOP;
END;
$$;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA memory TO nianlun_memory;
