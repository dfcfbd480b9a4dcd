-- Schema memory: turns, profile facts, episodes, summaries, readings, and what keeps them honest.
-- Every key begins with tenant_id, so that the schema can be distributed by tenant. User scope is an
-- equality on user_id in every key that holds a user's data.

CREATE SCHEMA IF NOT EXISTS memory;
GRANT USAGE ON SCHEMA memory TO nianlun_memory;

-- position: number of the newest acknowledged turn. index_version: changes with the searchable notes,
-- readings and vectors; both come from one sequence, so that a user who was erased and comes back
-- never meets a cache entry of the time before.
CREATE SEQUENCE IF NOT EXISTS memory.positions AS bigint;
GRANT USAGE ON SEQUENCE memory.positions TO nianlun_memory;

CREATE TABLE IF NOT EXISTS memory.users (
    tenant_id     text NOT NULL,
    user_id       text NOT NULL,
    position      bigint NOT NULL,
    index_version bigint NOT NULL,
    time_zone     text NOT NULL DEFAULT 'UTC',
    create_time   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, user_id)
);

CREATE TABLE IF NOT EXISTS memory.sessions (
    tenant_id  text NOT NULL,
    user_id    text NOT NULL,
    session_id text NOT NULL,
    turns      bigint NOT NULL DEFAULT 0,
    start_time timestamptz NOT NULL,
    last_time  timestamptz NOT NULL,
    end_time   timestamptz,
    PRIMARY KEY (tenant_id, user_id, session_id)
);

-- digest_state: fresh (waiting), done, quarantined (gave up; reason in digest_error).
CREATE TABLE IF NOT EXISTS memory.turns (
    tenant_id   text NOT NULL,
    user_id     text NOT NULL,
    turn_id     uuid NOT NULL,
    session_id  text NOT NULL,
    sequence    bigint NOT NULL,
    position    bigint NOT NULL,
    messages    jsonb NOT NULL,
    event_time  timestamptz NOT NULL,
    time_zone   text NOT NULL DEFAULT 'UTC',
    create_time timestamptz NOT NULL DEFAULT now(),
    flags       text[] NOT NULL DEFAULT '{}',
    metadata    jsonb NOT NULL DEFAULT '{}',
    digest_state text NOT NULL DEFAULT 'fresh' CHECK (digest_state IN ('fresh', 'done', 'quarantined')),
    digest_attempts integer NOT NULL DEFAULT 0,
    digest_error text,
    PRIMARY KEY (tenant_id, user_id, turn_id),
    UNIQUE (tenant_id, user_id, session_id, sequence)
);
CREATE INDEX IF NOT EXISTS turns_by_time ON memory.turns (tenant_id, user_id, event_time DESC, position DESC);
CREATE INDEX IF NOT EXISTS turns_undigested ON memory.turns (tenant_id, user_id, position)
    WHERE digest_state <> 'done';

-- Terms of one item, as services/search tokenises it. kind: turn, episode.
CREATE TABLE IF NOT EXISTS memory.lexical (
    tenant_id   text NOT NULL,
    user_id     text NOT NULL,
    kind        text NOT NULL,
    item_id     uuid NOT NULL,
    tok_version text NOT NULL,
    terms       text[] NOT NULL,
    PRIMARY KEY (tenant_id, user_id, kind, item_id)
);

CREATE TABLE IF NOT EXISTS memory.facts (
    tenant_id     text NOT NULL,
    user_id       text NOT NULL,
    fact_id       uuid NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('preference', 'fact')),
    attribute     text NOT NULL,
    value         text NOT NULL,
    value_key     text NOT NULL,
    statement     text NOT NULL,
    cardinality   text NOT NULL CHECK (cardinality IN ('one', 'many')),
    state         text NOT NULL CHECK (state IN ('active', 'superseded', 'corrected', 'retracted')),
    valid_from    timestamptz NOT NULL,
    valid_to      timestamptz,
    recorded_from timestamptz NOT NULL,
    recorded_to   timestamptz,
    closed_at     timestamptz,
    origin        text NOT NULL,
    language      text NOT NULL,
    etag          text NOT NULL,
    PRIMARY KEY (tenant_id, user_id, fact_id)
);
CREATE INDEX IF NOT EXISTS facts_by_attribute ON memory.facts (tenant_id, user_id, attribute, valid_from);
CREATE UNIQUE INDEX IF NOT EXISTS facts_active_once ON memory.facts (tenant_id, user_id, attribute, value_key)
    WHERE state = 'active';

CREATE TABLE IF NOT EXISTS memory.fact_sources (
    tenant_id  text NOT NULL,
    user_id    text NOT NULL,
    fact_id    uuid NOT NULL,
    turn_id    uuid NOT NULL,
    session_id text NOT NULL,
    quote      text NOT NULL,
    event_time timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, user_id, fact_id, turn_id)
);
CREATE INDEX IF NOT EXISTS fact_sources_by_turn ON memory.fact_sources (tenant_id, user_id, turn_id);

CREATE TABLE IF NOT EXISTS memory.episodes (
    tenant_id   text NOT NULL,
    user_id     text NOT NULL,
    episode_id  uuid NOT NULL,
    session_id  text NOT NULL,
    note        text NOT NULL,
    note_key    text NOT NULL,
    event_time  timestamptz NOT NULL,
    about_from  timestamptz,
    about_to    timestamptz,
    origin      text NOT NULL,
    language    text NOT NULL,
    etag        text NOT NULL,
    create_time timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, user_id, episode_id),
    UNIQUE (tenant_id, user_id, note_key)
);
CREATE INDEX IF NOT EXISTS episodes_by_time ON memory.episodes (tenant_id, user_id, event_time DESC);

CREATE TABLE IF NOT EXISTS memory.episode_sources (
    tenant_id  text NOT NULL,
    user_id    text NOT NULL,
    episode_id uuid NOT NULL,
    turn_id    uuid NOT NULL,
    session_id text NOT NULL,
    quote      text NOT NULL,
    event_time timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, user_id, episode_id, turn_id)
);
CREATE INDEX IF NOT EXISTS episode_sources_by_turn ON memory.episode_sources (tenant_id, user_id, turn_id);

-- Two models stand side by side; an item without a row here is pending.
CREATE TABLE IF NOT EXISTS memory.vectors (
    tenant_id text NOT NULL,
    user_id   text NOT NULL,
    model_id  text NOT NULL,
    kind      text NOT NULL CHECK (kind IN ('turn', 'episode', 'reading')),
    item_id   uuid NOT NULL,
    vector    halfvec NOT NULL,
    PRIMARY KEY (tenant_id, user_id, model_id, kind, item_id)
);
ALTER TABLE memory.vectors ALTER COLUMN vector SET STORAGE PLAIN;

-- session_id '' is the summary of the user. covered_until: for a session the last sequence, for the
-- user the last position.
CREATE TABLE IF NOT EXISTS memory.summaries (
    tenant_id     text NOT NULL,
    user_id       text NOT NULL,
    session_id    text NOT NULL,
    version       integer NOT NULL,
    text          text NOT NULL,
    covered_turns bigint NOT NULL,
    covered_until bigint NOT NULL,
    from_time     timestamptz NOT NULL,
    to_time       timestamptz NOT NULL,
    origin        text NOT NULL,
    create_time   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, user_id, session_id, version)
);

CREATE TABLE IF NOT EXISTS memory.readings (
    tenant_id   text NOT NULL,
    user_id     text NOT NULL,
    document_id text NOT NULL,
    reading_id  uuid NOT NULL,
    title       text NOT NULL,
    summary     text NOT NULL,
    metadata    jsonb NOT NULL DEFAULT '{}',
    first_read_time timestamptz NOT NULL,
    read_time   timestamptz NOT NULL,
    times       integer NOT NULL DEFAULT 1,
    weight      double precision NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant_id, user_id, document_id)
);

-- Tombstones name nobody: user and content are hashes. A statement made after kill_time is new.
CREATE TABLE IF NOT EXISTS memory.tombstones (
    tenant_id    text NOT NULL,
    user_hash    text NOT NULL,
    kind         text NOT NULL,
    content_hash text NOT NULL,
    kill_time    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, user_hash, kind, content_hash)
);

CREATE TABLE IF NOT EXISTS memory.receipts (
    tenant_id    text NOT NULL,
    receipt_id   uuid NOT NULL,
    scope        text NOT NULL,
    subject_hash text NOT NULL,
    removed      jsonb NOT NULL,
    content_hash text NOT NULL,
    tombstones   bigint NOT NULL,
    erase_time   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, receipt_id)
);

CREATE TABLE IF NOT EXISTS memory.usage (
    tenant_id         text NOT NULL,
    day               date NOT NULL,
    layer             text NOT NULL,
    calls             bigint NOT NULL DEFAULT 0,
    prompt_tokens     bigint NOT NULL DEFAULT 0,
    completion_tokens bigint NOT NULL DEFAULT 0,
    cost_micros       bigint NOT NULL DEFAULT 0,
    failed_calls      bigint NOT NULL DEFAULT 0,
    stopped_calls     bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, day, layer)
);

CREATE TABLE IF NOT EXISTS memory.settings (
    tenant_id text NOT NULL,
    settings  jsonb NOT NULL,
    etag      text NOT NULL,
    PRIMARY KEY (tenant_id)
);

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['users', 'sessions', 'turns', 'lexical', 'facts', 'fact_sources',
                             'episodes', 'episode_sources', 'vectors', 'summaries', 'readings',
                             'tombstones', 'receipts', 'usage', 'settings'] LOOP
        PERFORM auth.protect(format('memory.%I', t)::regclass);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON memory.%I TO nianlun_memory', t);
    END LOOP;
END;
$$;

SELECT auth.create_requests_table('memory');
SELECT auth.create_jobs_table('memory');

-- Takes the user's row lock (every write of a user's memory does this first, so that an erasure, a
-- digest and new turns never interleave) and returns its new position.
CREATE OR REPLACE FUNCTION memory.advance_user(p_user text, p_zone text) RETURNS bigint
LANGUAGE sql AS $$
    INSERT INTO memory.users AS u (tenant_id, user_id, position, index_version, time_zone)
    VALUES (current_setting('nianlun.tenant_id'), p_user, nextval('memory.positions'),
            nextval('memory.positions'), p_zone)
    ON CONFLICT (tenant_id, user_id)
        DO UPDATE SET position = nextval('memory.positions'), time_zone = excluded.time_zone
    RETURNING u.position
$$;

-- AppendTurn in one statement: request row, turn, lexical entry, job. A repeated request_id returns
-- the first receipt (replayed = true, and its request hash for the caller to compare).
CREATE OR REPLACE FUNCTION memory.append_turn(
    p_rpc text, p_request_id text, p_hash bytea, p_user text, p_session text, p_turn uuid,
    p_messages jsonb, p_event_time timestamptz, p_zone text, p_flags text[], p_metadata jsonb,
    p_tok_version text, p_terms text[], p_lock text, p_dedupe text
) RETURNS TABLE (replayed boolean, request_hash bytea, receipt jsonb)
LANGUAGE plpgsql AS $$
DECLARE
    v_tenant text := current_setting('nianlun.tenant_id');
    v_position bigint;
    v_sequence bigint;
    v_job uuid;
    v_receipt jsonb;
BEGIN
    INSERT INTO memory.requests AS r (tenant_id, rpc, request_id, request_hash, subject)
    VALUES (v_tenant, p_rpc, p_request_id, p_hash, p_user)
    ON CONFLICT (tenant_id, rpc, request_id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN QUERY SELECT true, r.request_hash, convert_from(r.response, 'UTF8')::jsonb
            FROM memory.requests AS r
            WHERE r.tenant_id = v_tenant AND r.rpc = p_rpc AND r.request_id = p_request_id;
        RETURN;
    END IF;
    v_position := memory.advance_user(p_user, p_zone);
    INSERT INTO memory.sessions AS s (tenant_id, user_id, session_id, turns, start_time, last_time)
    VALUES (v_tenant, p_user, p_session, 1, p_event_time, p_event_time)
    ON CONFLICT (tenant_id, user_id, session_id) DO UPDATE
        SET turns = s.turns + 1, start_time = least(s.start_time, excluded.start_time),
            last_time = greatest(s.last_time, excluded.last_time), end_time = NULL
    RETURNING s.turns INTO v_sequence;
    INSERT INTO memory.turns (tenant_id, user_id, turn_id, session_id, sequence, position, messages,
                              event_time, time_zone, flags, metadata)
    VALUES (v_tenant, p_user, p_turn, p_session, v_sequence, v_position, p_messages,
            p_event_time, p_zone, p_flags, p_metadata);
    INSERT INTO memory.lexical (tenant_id, user_id, kind, item_id, tok_version, terms)
    VALUES (v_tenant, p_user, 'turn', p_turn, p_tok_version, p_terms);
    v_job := memory.enqueue_job('digest', jsonb_build_object('user_id', p_user, 'session_id', p_session),
                                p_lock, p_dedupe, 0, 'turns');
    v_receipt := jsonb_build_object('turn_id', p_turn, 'sequence', v_sequence, 'position', v_position,
                                    'job_id', v_job, 'event_time', extract(epoch FROM p_event_time));
    UPDATE memory.requests AS r SET response = convert_to(v_receipt::text, 'UTF8')
    WHERE r.tenant_id = v_tenant AND r.rpc = p_rpc AND r.request_id = p_request_id;
    RETURN QUERY SELECT false, p_hash, v_receipt;
END;
$$;

GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA memory TO nianlun_memory;
