-- Schema retriever: collections, documents, chunks, and the side tables that the legs search.
--
-- An item is one distinct indexed text of a collection; chunks are the places where it stands. So
-- equal texts have one vector and one entry in the postings, however many documents hold them.
-- Items are numbered per collection in the order of writing; a number is never given twice.

CREATE SCHEMA IF NOT EXISTS retriever;
GRANT USAGE ON SCHEMA retriever TO nianlun_retriever;

CREATE TABLE IF NOT EXISTS retriever.collections (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    display_name    text NOT NULL DEFAULT '',
    description     text NOT NULL DEFAULT '',
    default_recipe  text NOT NULL,
    model_id        text NOT NULL,
    previous_model_id text,
    tokenizer       text NOT NULL,
    -- Rises with every change of the documents; names the state that a cached index belongs to.
    version         bigint NOT NULL DEFAULT 0,
    next_item       bigint NOT NULL DEFAULT 1,
    next_segment    bigint NOT NULL DEFAULT 1,
    document_count  bigint NOT NULL DEFAULT 0,
    chunk_count     bigint NOT NULL DEFAULT 0,
    -- BM25's statistics: live items and the sum of their lengths in tokens.
    item_count      bigint NOT NULL DEFAULT 0,
    item_length     bigint NOT NULL DEFAULT 0,
    etag            uuid NOT NULL DEFAULT gen_random_uuid(),
    create_time     timestamptz NOT NULL DEFAULT now(),
    update_time     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, collection_id)
);

CREATE TABLE IF NOT EXISTS retriever.spaces (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    model_id        text NOT NULL,
    model_revision  text NOT NULL DEFAULT '',
    dimensions      integer NOT NULL DEFAULT 0,
    state           text NOT NULL CHECK (state IN ('active', 'building', 'ready')),
    vectors         bigint NOT NULL DEFAULT 0,
    -- The HNSW index and the search width at which it passed its recall check; NULL: exact scans.
    index_name      text,
    ef_search       integer,
    create_time     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, collection_id, model_id),
    FOREIGN KEY (tenant_id, collection_id)
        REFERENCES retriever.collections (tenant_id, collection_id) ON DELETE CASCADE
);

CREATE TABLE IF NOT EXISTS retriever.documents (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    document_id     text NOT NULL,
    title           text NOT NULL,
    format          smallint NOT NULL DEFAULT 0,
    uri             text NOT NULL DEFAULT '',
    metadata        jsonb NOT NULL DEFAULT '{}',
    state           text NOT NULL CHECK (state IN ('pending', 'ready', 'failed')),
    error_reason    text,
    error_message   text,
    content_hash    bytea NOT NULL,
    -- What the client gave as title; the shown one may come from elsewhere.
    given_title     text NOT NULL DEFAULT '',
    text            text NOT NULL DEFAULT '',
    text_chars      bigint NOT NULL DEFAULT 0,
    chunk_count     integer NOT NULL DEFAULT 0,
    revision        bigint NOT NULL DEFAULT 0,
    changes         jsonb NOT NULL DEFAULT '[]',
    create_time     timestamptz NOT NULL DEFAULT now(),
    update_time     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, collection_id, document_id),
    FOREIGN KEY (tenant_id, collection_id)
        REFERENCES retriever.collections (tenant_id, collection_id) ON DELETE CASCADE
);

-- Content that was accepted and not read yet. The job carries the upload's id, nothing else.
CREATE TABLE IF NOT EXISTS retriever.uploads (
    tenant_id       text NOT NULL,
    upload_id       uuid NOT NULL,
    position        integer NOT NULL,
    collection_id   text NOT NULL,
    document_id     text NOT NULL,
    title           text NOT NULL,
    format          smallint NOT NULL,
    uri             text NOT NULL,
    metadata        jsonb NOT NULL,
    changes         jsonb NOT NULL,
    content_hash    bytea NOT NULL,
    text            text,
    data            bytea,
    create_time     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, upload_id, position),
    FOREIGN KEY (tenant_id, collection_id)
        REFERENCES retriever.collections (tenant_id, collection_id) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS uploads_by_document
    ON retriever.uploads (tenant_id, collection_id, document_id);

CREATE TABLE IF NOT EXISTS retriever.items (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    item            bigint NOT NULL,
    -- Of the indexed text (title, section, passage) and of the passage alone.
    content_hash    bytea NOT NULL,
    passage_hash    bytea NOT NULL,
    length          integer NOT NULL,
    places          integer NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, item),
    UNIQUE (tenant_id, collection_id, content_hash)
);

CREATE TABLE IF NOT EXISTS retriever.chunks (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    document_id     text NOT NULL,
    ordinal         integer NOT NULL,
    chunk_id        uuid NOT NULL,
    item            bigint NOT NULL,
    kind            smallint NOT NULL,
    section         text[] NOT NULL,
    text            text NOT NULL,
    header          text NOT NULL DEFAULT '',
    start_char      bigint NOT NULL,
    end_char        bigint NOT NULL,
    page            integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, collection_id, document_id, ordinal),
    FOREIGN KEY (tenant_id, collection_id, document_id)
        REFERENCES retriever.documents (tenant_id, collection_id, document_id) ON DELETE CASCADE
);
CREATE INDEX IF NOT EXISTS chunks_by_item ON retriever.chunks (tenant_id, collection_id, item);

-- One narrow row a vector: an exact scan reads nothing else. PLAIN keeps it out of TOAST.
CREATE TABLE IF NOT EXISTS retriever.vectors (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    model_id        text NOT NULL,
    item            bigint NOT NULL,
    embedding       halfvec NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, model_id, item)
);
ALTER TABLE retriever.vectors ALTER COLUMN embedding SET STORAGE PLAIN;

-- Compressed token vectors for late interaction, where the model has a codec for them.
CREATE TABLE IF NOT EXISTS retriever.token_vectors (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    model_id        text NOT NULL,
    item            bigint NOT NULL,
    codec           text NOT NULL,
    dimensions      integer NOT NULL,
    entries         bytea NOT NULL,
    scales          bytea NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, model_id, item)
);
ALTER TABLE retriever.token_vectors ALTER COLUMN entries SET STORAGE EXTERNAL;

-- Packed postings. A segment holds the items of one write, or of several merged ones; its items are
-- a range of numbers of its own. A row is one term of one segment.
CREATE TABLE IF NOT EXISTS retriever.segments (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    segment         bigint NOT NULL,
    first_item      bigint NOT NULL,
    last_item       bigint NOT NULL,
    items           bigint NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, segment)
);
CREATE TABLE IF NOT EXISTS retriever.postings (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    segment         bigint NOT NULL,
    term            text COLLATE "C" NOT NULL,
    entries         bytea NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, segment, term)
);
ALTER TABLE retriever.postings ALTER COLUMN entries SET STORAGE EXTERNAL;
-- Items that are gone but still stand in a segment, until a merge drops them.
CREATE TABLE IF NOT EXISTS retriever.dead_items (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    item            bigint NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, item)
);

-- Document metadata by type, for filters. A list has a row for each of its values.
CREATE TABLE IF NOT EXISTS retriever.document_metadata (
    tenant_id       text NOT NULL,
    collection_id   text NOT NULL,
    document_id     text NOT NULL,
    key             text COLLATE "C" NOT NULL,
    position        smallint NOT NULL,
    text_value      text COLLATE "C",
    number_value    numeric,
    bool_value      boolean,
    time_value      timestamptz,
    PRIMARY KEY (tenant_id, collection_id, document_id, key, position),
    FOREIGN KEY (tenant_id, collection_id, document_id)
        REFERENCES retriever.documents (tenant_id, collection_id, document_id) ON DELETE CASCADE
);
-- A B-tree key has at most some 2,700 bytes: long values are indexed by their beginning.
CREATE INDEX IF NOT EXISTS metadata_by_text ON retriever.document_metadata
    (tenant_id, collection_id, key, left(text_value, 100)) WHERE text_value IS NOT NULL;
CREATE INDEX IF NOT EXISTS metadata_by_number ON retriever.document_metadata
    (tenant_id, collection_id, key, number_value) WHERE number_value IS NOT NULL;
CREATE INDEX IF NOT EXISTS metadata_by_time ON retriever.document_metadata
    (tenant_id, collection_id, key, time_value) WHERE time_value IS NOT NULL;
CREATE INDEX IF NOT EXISTS metadata_by_bool ON retriever.document_metadata
    (tenant_id, collection_id, key, bool_value) WHERE bool_value IS NOT NULL;

-- What a tenant has fitted for a model; the shipped calibrations stand in the code.
CREATE TABLE IF NOT EXISTS retriever.calibrations (
    tenant_id       text NOT NULL,
    model_id        text NOT NULL,
    calibration     jsonb NOT NULL,
    pairs           integer NOT NULL,
    update_time     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, model_id)
);

-- The pairs of a waiting calibration job.
CREATE TABLE IF NOT EXISTS retriever.calibration_pairs (
    tenant_id       text NOT NULL,
    upload_id       uuid NOT NULL,
    position        integer NOT NULL,
    query           text NOT NULL,
    document_ids    text[] NOT NULL,
    PRIMARY KEY (tenant_id, upload_id, position)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON
    retriever.collections, retriever.spaces, retriever.documents, retriever.uploads,
    retriever.items, retriever.chunks, retriever.vectors, retriever.token_vectors,
    retriever.segments, retriever.postings, retriever.dead_items, retriever.document_metadata,
    retriever.calibrations, retriever.calibration_pairs
TO nianlun_retriever;

SELECT auth.protect('retriever.collections');
SELECT auth.protect('retriever.spaces');
SELECT auth.protect('retriever.documents');
SELECT auth.protect('retriever.uploads');
SELECT auth.protect('retriever.items');
SELECT auth.protect('retriever.chunks');
SELECT auth.protect('retriever.vectors');
SELECT auth.protect('retriever.token_vectors');
SELECT auth.protect('retriever.segments');
SELECT auth.protect('retriever.postings');
SELECT auth.protect('retriever.dead_items');
SELECT auth.protect('retriever.document_metadata');
SELECT auth.protect('retriever.calibrations');
SELECT auth.protect('retriever.calibration_pairs');

SELECT auth.create_requests_table('retriever');
SELECT auth.create_jobs_table('retriever');
