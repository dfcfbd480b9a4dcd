-- AppendTurn without what makes commits queue up.
--
-- A transaction that sends NOTIFY holds a database-wide lock while it commits, so that appends would
-- reach the disk one after the other (measured: half the throughput). Services of memory therefore
-- wake their worker with a notification of its own, after the commit and for many appends at once;
-- a worker that misses it polls.
ALTER TABLE memory_queue.procrastinate_jobs
    DISABLE TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1;

-- The same in one round trip: the function is the transaction. Its plans are by primary key whatever
-- the values are, so they need not be made anew for each call.
CREATE OR REPLACE FUNCTION memory.append_turn_as(
    p_tenant text, p_rpc text, p_request_id text, p_hash bytea, p_user text, p_session text,
    p_turn uuid, p_messages jsonb, p_event_time timestamptz, p_zone text, p_flags text[],
    p_metadata jsonb, p_tok_version text, p_terms text[], p_lock text, p_dedupe text
) RETURNS TABLE (replayed boolean, request_hash bytea, receipt jsonb)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM set_config('nianlun.tenant_id', p_tenant, true);
    RETURN QUERY SELECT a.replayed, a.request_hash, a.receipt FROM memory.append_turn(
        p_rpc, p_request_id, p_hash, p_user, p_session, p_turn, p_messages, p_event_time, p_zone,
        p_flags, p_metadata, p_tok_version, p_terms, p_lock, p_dedupe) AS a;
END;
$$;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA memory TO nianlun_memory;
