-- SELECT auth.create_jobs_table('memory'): the status table memory.jobs, which is what the API
-- shows, and the functions around it. The queue itself is procrastinate's, in schema
-- memory_queue; it carries the tenant's and the job's id and nothing else.
--
-- memory.enqueue_job(kind, subject, lock, dedupe, total, unit, delay) RETURNS uuid
--   Adds a job in the caller's transaction, for the tenant that nianlun.tenant_id names; call it
--   from a SQL function that writes the data the job is about:
--       PERFORM memory.enqueue_job('digest', jsonb_build_object('session_id', p_session),
--                                  p_lock => p_user, p_dedupe => p_session);
--   lock:   jobs with one lock (of one tenant) never run at the same time and keep their order.
--   dedupe: while a job of this kind and dedupe key waits for its first attempt, its id is returned
--           instead of a new one. The waiting row is locked, so that the worker cannot start it
--           before this transaction has ended: it then sees what was written here.
--   delay:  earliest start.
--
-- memory.defer_job(tenant, job, lock, at, priority), memory.unqueue_job(queue_id)
--   Put a row into the queue, and take one out that has not been started; for services.common.jobs.
--
-- memory.requeue_stalled(lease) RETURNS integer
--   Gives the jobs of workers without a heartbeat for longer than lease to other workers. A stalled
--   queue row is replaced, not reused: should its old worker wake up, it finds nothing to finish.
CREATE OR REPLACE FUNCTION auth.create_jobs_table(p_schema text) RETURNS void
LANGUAGE plpgsql AS $outer$
DECLARE
    v_role text := 'nianlun_' || p_schema;
    v_queue text := p_schema || '_queue';
BEGIN
    EXECUTE format($sql$
        CREATE TABLE IF NOT EXISTS %1$I.jobs (
            tenant_id    text NOT NULL,
            job_id       uuid NOT NULL,
            kind         text NOT NULL,
            state        text NOT NULL DEFAULT 'queued' CHECK (state IN
                         ('queued', 'running', 'retrying', 'succeeded', 'failed', 'cancelled')),
            subject      jsonb NOT NULL DEFAULT '{}',
            lock         text,
            dedupe       text,
            done         bigint NOT NULL DEFAULT 0,
            total        bigint NOT NULL DEFAULT 0,
            unit         text NOT NULL DEFAULT '',
            attempts     integer NOT NULL DEFAULT 0,
            failures     integer NOT NULL DEFAULT 0,
            error_reason  text,
            error_message text,
            item_errors  jsonb NOT NULL DEFAULT '[]',
            result       jsonb NOT NULL DEFAULT '{}',
            cancel_requested boolean NOT NULL DEFAULT false,
            lease        uuid,
            queue_id     bigint,
            create_time  timestamptz NOT NULL DEFAULT now(),
            update_time  timestamptz NOT NULL DEFAULT now(),
            first_failure_time timestamptz,
            next_attempt_time  timestamptz,
            end_time     timestamptz,
            PRIMARY KEY (tenant_id, job_id)
        )$sql$, p_schema);
    EXECUTE format(
        'CREATE UNIQUE INDEX IF NOT EXISTS jobs_waiting_once ON %I.jobs (tenant_id, kind, dedupe)
         WHERE state = ''queued'' AND dedupe IS NOT NULL', p_schema);
    EXECUTE format(
        'CREATE INDEX IF NOT EXISTS jobs_newest_first
         ON %I.jobs (tenant_id, create_time DESC, job_id DESC)', p_schema);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I.jobs TO %I', p_schema, v_role);
    PERFORM auth.protect(format('%I.jobs', p_schema)::regclass);

    EXECUTE format($sql$
        CREATE OR REPLACE FUNCTION %1$I.defer_job(
            p_tenant text, p_job uuid, p_lock text, p_at timestamptz, p_priority integer DEFAULT 0
        ) RETURNS bigint
        LANGUAGE sql
        SET search_path = %2$I, pg_temp
        AS $body$
            SELECT (procrastinate_defer_jobs_v1(ARRAY[ROW(
                %1$L, 'nianlun.run', p_priority,
                CASE WHEN p_lock IS NULL THEN NULL ELSE p_tenant || chr(31) || p_lock END, NULL,
                jsonb_build_object('tenant_id', p_tenant, 'job_id', p_job), p_at
            )::procrastinate_job_to_defer_v1]))[1]
        $body$$sql$, p_schema, v_queue);

    EXECUTE format($sql$
        CREATE OR REPLACE FUNCTION %1$I.enqueue_job(
            p_kind text, p_subject jsonb, p_lock text DEFAULT NULL, p_dedupe text DEFAULT NULL,
            p_total bigint DEFAULT 0, p_unit text DEFAULT '', p_delay interval DEFAULT NULL
        ) RETURNS uuid
        LANGUAGE plpgsql AS $body$
        DECLARE
            v_tenant text := current_setting('nianlun.tenant_id');
            v_new uuid := gen_random_uuid();
            v_at timestamptz := CASE WHEN p_delay > interval '0' THEN now() + p_delay END;
            v_job uuid;
        BEGIN
            INSERT INTO %1$I.jobs AS j
                (tenant_id, job_id, kind, subject, lock, dedupe, total, unit, next_attempt_time)
            VALUES (v_tenant, v_new, p_kind, p_subject, p_lock, p_dedupe, p_total, p_unit, v_at)
            ON CONFLICT (tenant_id, kind, dedupe) WHERE state = 'queued' AND dedupe IS NOT NULL
                DO UPDATE SET update_time = now()
            RETURNING j.job_id INTO v_job;
            IF v_job = v_new THEN
                UPDATE %1$I.jobs SET queue_id = %1$I.defer_job(v_tenant, v_job, p_lock, v_at)
                WHERE tenant_id = v_tenant AND job_id = v_job;
            END IF;
            RETURN v_job;
        END;
        $body$$sql$, p_schema);

    EXECUTE format($sql$
        CREATE OR REPLACE FUNCTION %1$I.unqueue_job(p_queue_id bigint) RETURNS void
        LANGUAGE sql
        SET search_path = %2$I, pg_temp
        AS $body$
            DELETE FROM procrastinate_jobs WHERE id = p_queue_id AND status = 'todo'
        $body$$sql$, p_schema, v_queue);

    EXECUTE format($sql$
        CREATE OR REPLACE FUNCTION %1$I.requeue_stalled(p_lease interval) RETURNS integer
        LANGUAGE plpgsql
        SET search_path = %2$I, pg_temp
        AS $body$
        DECLARE
            v_old record;
            v_count integer := 0;
        BEGIN
            -- One at a time: the next one sees with a fresh snapshot what this one has moved.
            IF NOT pg_try_advisory_xact_lock(hashtextextended('nianlun.stalled.%1$s', 0)) THEN
                RETURN 0;
            END IF;
            FOR v_old IN
                SELECT q.id, q.args, q.priority FROM %2$I.procrastinate_jobs AS q
                WHERE q.status = 'doing' AND NOT EXISTS (
                    SELECT 1 FROM %2$I.procrastinate_workers AS w
                    WHERE w.id = q.worker_id AND w.last_heartbeat >= now() - p_lease)
                ORDER BY q.id
                FOR UPDATE OF q SKIP LOCKED
            LOOP
                DELETE FROM %2$I.procrastinate_jobs WHERE id = v_old.id;
                PERFORM set_config('nianlun.tenant_id', v_old.args ->> 'tenant_id', true);
                -- The higher priority keeps it ahead of later jobs that wait for the same lock.
                UPDATE %1$I.jobs AS j
                SET queue_id = %1$I.defer_job(j.tenant_id, j.job_id, j.lock, NULL,
                                              v_old.priority + 1)
                WHERE j.job_id = (v_old.args ->> 'job_id')::uuid
                  AND j.tenant_id = v_old.args ->> 'tenant_id'
                  AND j.state IN ('queued', 'running', 'retrying');
                v_count := v_count + 1;
            END LOOP;
            RETURN v_count;
        END;
        $body$$sql$, p_schema, v_queue);

    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO %I', p_schema, v_role);
END;
$outer$;
REVOKE ALL ON FUNCTION auth.create_jobs_table(text) FROM PUBLIC;
