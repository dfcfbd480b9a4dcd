-- Turns that arrive together are written together: one round trip, one commit, one wait for the disk.
--
-- p_turns: an array of objects, one a turn, in the order of (tenant, user), so that two groups never
-- wait for each other in a circle. Without p_wait a user whose row somebody holds (a digest, an erasure)
-- is left out as busy, so that nobody waits for another user: the caller writes that turn alone.
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
        v_tenant := t ->> 'tenant';
        v_user := t ->> 'user';
        PERFORM set_config('nianlun.tenant_id', v_tenant, true);
        IF NOT p_wait THEN
            PERFORM 1 FROM memory.users AS u WHERE u.tenant_id = v_tenant AND u.user_id = v_user
                FOR UPDATE SKIP LOCKED;
            IF NOT FOUND AND EXISTS (
                SELECT 1 FROM memory.users AS u WHERE u.tenant_id = v_tenant AND u.user_id = v_user
            ) THEN
                busy := true; replayed := false; request_hash := NULL; receipt := NULL;
                RETURN NEXT;
                CONTINUE;
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
