-- Schema orchestrator: runs with their events, feedback, and session checkpoints.

CREATE SCHEMA IF NOT EXISTS orchestrator;
GRANT USAGE ON SCHEMA orchestrator TO nianlun_orchestrator;

-- One row a turn. `record` is the Run of the contract as shown; `events`, `response` and `prompt` are
-- payloads that lists never read. `pending` is the exchange that memory has not taken yet.
CREATE TABLE IF NOT EXISTS orchestrator.runs (
    tenant_id   text NOT NULL,
    run_id      uuid NOT NULL,
    request_id  text NOT NULL,
    input_hash  bytea NOT NULL,
    user_id     text NOT NULL,
    session_id  text NOT NULL,
    state       text NOT NULL CHECK (state IN ('running', 'completed', 'failed', 'cancelled')),
    attempt     uuid NOT NULL,
    lease_until timestamptz NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now(),
    end_time    timestamptz,
    record      bytea,
    response    bytea,
    events      bytea,
    prompt      bytea,
    pending     bytea,
    PRIMARY KEY (tenant_id, run_id),
    UNIQUE (tenant_id, request_id)
);
CREATE INDEX IF NOT EXISTS runs_newest
    ON orchestrator.runs (tenant_id, create_time DESC, run_id DESC);
CREATE INDEX IF NOT EXISTS runs_by_user
    ON orchestrator.runs (tenant_id, user_id, create_time DESC, run_id DESC);

CREATE TABLE IF NOT EXISTS orchestrator.feedback (
    tenant_id   text NOT NULL,
    run_id      uuid NOT NULL,
    reading_id  text NOT NULL DEFAULT '',
    verdict     text NOT NULL CHECK (verdict IN ('useful', 'not_useful')),
    comment     text NOT NULL DEFAULT '',
    create_time timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, run_id, reading_id),
    FOREIGN KEY (tenant_id, run_id) REFERENCES orchestrator.runs (tenant_id, run_id) ON DELETE CASCADE
);

-- The checkpoint of a session: messages in order; those up to `summarised_seq` stand in `summary`.
CREATE TABLE IF NOT EXISTS orchestrator.sessions (
    tenant_id      text NOT NULL,
    user_id        text NOT NULL,
    session_id     text NOT NULL,
    summary        text NOT NULL DEFAULT '',
    summarised_seq bigint NOT NULL DEFAULT 0,
    update_time    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, user_id, session_id)
);

CREATE TABLE IF NOT EXISTS orchestrator.session_messages (
    tenant_id   text NOT NULL,
    user_id     text NOT NULL,
    session_id  text NOT NULL,
    seq         bigint GENERATED ALWAYS AS IDENTITY,
    role        text NOT NULL CHECK (role IN ('user', 'assistant')),
    text        text NOT NULL,
    run_id      uuid NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, user_id, session_id, seq)
);

SELECT auth.protect('orchestrator.runs');
SELECT auth.protect('orchestrator.feedback');
SELECT auth.protect('orchestrator.sessions');
SELECT auth.protect('orchestrator.session_messages');
GRANT SELECT, INSERT, UPDATE, DELETE
    ON orchestrator.runs, orchestrator.feedback, orchestrator.sessions, orchestrator.session_messages
    TO nianlun_orchestrator;

SELECT auth.create_requests_table('orchestrator');
SELECT auth.create_jobs_table('orchestrator');
