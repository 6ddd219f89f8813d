-- Text that is ordered or compared collates by bytes in every database (DESIGN I11).
-- Rows that a generation sees carry [born, died): died is NULL while they live.

CREATE EXTENSION IF NOT EXISTS vector;
CREATE EXTENSION IF NOT EXISTS pg_trgm;

CREATE TABLE projects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    display_name text NOT NULL,
    embedding_model text NOT NULL DEFAULT '',
    -- The live generation: the commit point of publishing.
    generation bigint NOT NULL DEFAULT 0,
    -- Fencing number: raised when a run takes the project; a run with an older one can write nothing more.
    fence bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE sources (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    package text COLLATE "C" NOT NULL,
    origin_kind text NOT NULL,
    origin_location text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (project_id, name),
    -- Chunk keys begin with the package.
    UNIQUE (project_id, package),
    UNIQUE (project_id, origin_kind, origin_location)
);

CREATE TABLE generations (
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    number bigint NOT NULL,
    run_id bigint NOT NULL,
    published_at timestamptz NOT NULL DEFAULT now(),
    superseded_at timestamptz,
    pipeline_hash bytea NOT NULL,
    -- The model that the vectors are of; empty without dense retrieval.
    model_name text NOT NULL,
    model_digest text NOT NULL,
    model_dimensions integer NOT NULL,
    model_budget_tokens integer NOT NULL,
    -- Counts of rows that live in the generation.
    counts jsonb NOT NULL,
    -- What the run could not do: [{method, reason, remedy}].
    degraded jsonb NOT NULL,
    PRIMARY KEY (project_id, number)
);

-- The last comparison of the sources with the live generation.
CREATE TABLE observations (
    project_id bigint PRIMARY KEY REFERENCES projects ON DELETE CASCADE,
    observed_at timestamptz NOT NULL,
    stale boolean NOT NULL,
    reason text NOT NULL
);

-- Readers that hold a generation: it is not swept before the lease ends.
CREATE TABLE leases (
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    generation bigint NOT NULL,
    holder text NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (project_id, generation, holder)
);

CREATE TABLE sidecars (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    method text NOT NULL,
    -- Name that the method gives the file; several files make one lexical index.
    logical_name text COLLATE "C" NOT NULL,
    sha256 bytea NOT NULL,
    size_bytes bigint NOT NULL,
    born bigint NOT NULL,
    died bigint
);
CREATE INDEX sidecars_live ON sidecars (project_id) WHERE died IS NULL;
CREATE INDEX sidecars_sha256 ON sidecars (sha256);

-- Long-running operations. The row with its fencing number is the truth about a run.
CREATE TABLE operations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    kind text NOT NULL,
    options jsonb NOT NULL,
    request_id text,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    report jsonb NOT NULL DEFAULT '{}',
    -- Why it failed: {kind, reason, message, remedy}.
    error jsonb,
    cancel_requested boolean NOT NULL DEFAULT false,
    -- Who runs it, in words. The claim itself is an advisory lock of the holder's session, gone when the holder dies.
    holder text,
    fence bigint,
    attempts integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    ended_at timestamptz,
    UNIQUE (project_id, request_id)
);
CREATE INDEX operations_open ON operations (id) WHERE state IN ('queued', 'running');
-- One run of a project at a time.
CREATE UNIQUE INDEX operations_running ON operations (project_id) WHERE state = 'running';
CREATE INDEX operations_project ON operations (project_id, id);

CREATE TABLE skipped_files (
    source_id bigint NOT NULL REFERENCES sources ON DELETE CASCADE,
    path text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    detail text NOT NULL,
    PRIMARY KEY (source_id, path)
);

-- Size and time of a file when its content was last read: a hint that saves reading, never the truth (DESIGN I6).
CREATE TABLE file_hints (
    source_id bigint NOT NULL REFERENCES sources ON DELETE CASCADE,
    path text COLLATE "C" NOT NULL,
    size_bytes bigint NOT NULL,
    mtime_ns bigint NOT NULL,
    content_hash bytea NOT NULL,
    -- Why the content is not indexed; NULL when it is.
    skip_reason text,
    skip_detail text,
    PRIMARY KEY (source_id, path)
);

-- Whole text of files, once per content: grep, read and spans are exact at their generation.
CREATE TABLE file_texts (
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    content_hash bytea NOT NULL,
    text_zlib bytea NOT NULL,
    line_count integer NOT NULL,
    PRIMARY KEY (project_id, content_hash)
);
ALTER TABLE file_texts ALTER COLUMN text_zlib SET STORAGE EXTERNAL;

CREATE TABLE files (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    source_id bigint NOT NULL,
    package text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    language text COLLATE "C" NOT NULL,
    -- Dotted name of a Python file; it may change with the files around it.
    module text COLLATE "C" NOT NULL,
    content_hash bytea NOT NULL,
    size_bytes bigint NOT NULL,
    born bigint NOT NULL,
    died bigint
);
CREATE UNIQUE INDEX files_live ON files (source_id, path) WHERE died IS NULL;
CREATE INDEX files_project ON files (project_id, path);
CREATE INDEX files_dead ON files (project_id, died) WHERE died IS NOT NULL;

-- Vectors by fingerprint, shared by all projects. The id is never reused: .tq files hold it.
CREATE TABLE vectors (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fingerprint bytea NOT NULL UNIQUE,
    model_digest text NOT NULL,
    embedding halfvec NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
-- Vectors do not compress; trying costs time at every write.
ALTER TABLE vectors ALTER COLUMN embedding SET STORAGE EXTERNAL;

-- What a chunk says: text, its lexical terms, its vector by fingerprint. Where it stands is in chunks.
CREATE TABLE contents (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    content_hash bytea NOT NULL,
    -- SHA-256 of the text alone: chunks of equal text collapse to one hit.
    text_hash bytea NOT NULL,
    -- NULL when the chunk is not embedded.
    fingerprint bytea,
    language text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    title text NOT NULL,
    -- What of the title is embedded with the text.
    embedded_title text NOT NULL,
    text text NOT NULL,
    UNIQUE (project_id, content_hash)
);
CREATE INDEX contents_name ON contents (project_id, name);
CREATE INDEX contents_text ON contents (project_id, text_hash);
CREATE INDEX contents_fingerprint ON contents (fingerprint, project_id) WHERE fingerprint IS NOT NULL;

CREATE TABLE chunks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    source_id bigint NOT NULL,
    content_id bigint NOT NULL REFERENCES contents,
    package text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,
    language text COLLATE "C" NOT NULL,
    qualified_name text COLLATE "C" NOT NULL,
    start_line integer NOT NULL,
    end_line integer NOT NULL,
    born bigint NOT NULL,
    died bigint
);
CREATE UNIQUE INDEX chunks_live ON chunks (project_id, key) WHERE died IS NULL;
CREATE INDEX chunks_content ON chunks (content_id);
CREATE INDEX chunks_path ON chunks (source_id, path);
CREATE INDEX chunks_key ON chunks (project_id, key);
CREATE INDEX chunks_dead ON chunks (project_id, died) WHERE died IS NOT NULL;

CREATE TABLE symbols (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    source_id bigint NOT NULL,
    package text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    qualified_name text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    language text COLLATE "C" NOT NULL,
    signature text NOT NULL,
    summary text NOT NULL,
    start_line integer NOT NULL,
    end_line integer NOT NULL,
    born bigint NOT NULL,
    died bigint
);
CREATE INDEX symbols_qualified_name ON symbols (qualified_name, project_id);
CREATE INDEX symbols_name ON symbols (name, project_id);
CREATE INDEX symbols_path ON symbols (source_id, path);
CREATE INDEX symbols_dead ON symbols (project_id, died) WHERE died IS NOT NULL;

-- The reference graph: one row per edge and place.
CREATE TABLE edges (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    source_id bigint NOT NULL,
    package text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    language text COLLATE "C" NOT NULL,
    source_symbol text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,
    target_symbol text COLLATE "C" NOT NULL,
    -- Last part of the target.
    target_name text COLLATE "C" NOT NULL,
    resolved boolean NOT NULL,
    line integer NOT NULL,
    line_text text NOT NULL,
    born bigint NOT NULL,
    died bigint
);
CREATE INDEX edges_target_symbol ON edges (target_symbol, project_id);
CREATE INDEX edges_target_name ON edges (target_name, project_id);
CREATE INDEX edges_source_symbol ON edges (source_symbol, project_id);
CREATE INDEX edges_path ON edges (source_id, path);
CREATE INDEX edges_dead ON edges (project_id, died) WHERE died IS NOT NULL;

CREATE TABLE decisions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    source_id bigint NOT NULL,
    package text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    number integer,
    title text NOT NULL,
    status smallint NOT NULL,
    -- The mined record without what its lines hold: sections, relations, mentions.
    record jsonb NOT NULL,
    born bigint NOT NULL,
    died bigint
);
CREATE UNIQUE INDEX decisions_live ON decisions (source_id, path) WHERE died IS NULL;
CREATE INDEX decisions_project ON decisions (project_id, path);
CREATE INDEX decisions_dead ON decisions (project_id, died) WHERE died IS NOT NULL;

-- What a run has found so far. Rows belong to a run; publishing merges them, and they go with the run.
CREATE TABLE staged_files (
    run_id bigint NOT NULL REFERENCES operations ON DELETE CASCADE,
    source_id bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    -- present: replaces what is live of the path; deleted: ends it.
    state text NOT NULL CHECK (state IN ('present', 'deleted')),
    package text COLLATE "C" NOT NULL DEFAULT '',
    language text COLLATE "C" NOT NULL DEFAULT '',
    module text COLLATE "C" NOT NULL DEFAULT '',
    content_hash bytea,
    size_bytes bigint,
    PRIMARY KEY (run_id, source_id, path)
);

CREATE TABLE staged_chunks (
    run_id bigint NOT NULL REFERENCES operations ON DELETE CASCADE,
    source_id bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    package text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    content_id bigint NOT NULL,
    kind smallint NOT NULL,
    language text COLLATE "C" NOT NULL,
    qualified_name text COLLATE "C" NOT NULL,
    start_line integer NOT NULL,
    end_line integer NOT NULL,
    PRIMARY KEY (run_id, key)
);
CREATE INDEX staged_chunks_path ON staged_chunks (run_id, source_id, path);
CREATE INDEX staged_chunks_content ON staged_chunks (run_id, content_id);

CREATE TABLE staged_symbols (
    run_id bigint NOT NULL REFERENCES operations ON DELETE CASCADE,
    source_id bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    package text COLLATE "C" NOT NULL,
    qualified_name text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    language text COLLATE "C" NOT NULL,
    signature text NOT NULL,
    summary text NOT NULL,
    start_line integer NOT NULL,
    end_line integer NOT NULL
);
CREATE INDEX staged_symbols_path ON staged_symbols (run_id, source_id, path);

CREATE TABLE staged_edges (
    run_id bigint NOT NULL REFERENCES operations ON DELETE CASCADE,
    source_id bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    package text COLLATE "C" NOT NULL,
    language text COLLATE "C" NOT NULL,
    source_symbol text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,
    target_symbol text COLLATE "C" NOT NULL,
    target_name text COLLATE "C" NOT NULL,
    resolved boolean NOT NULL,
    line integer NOT NULL,
    line_text text NOT NULL
);
CREATE INDEX staged_edges_path ON staged_edges (run_id, source_id, path);

CREATE TABLE staged_decisions (
    run_id bigint NOT NULL REFERENCES operations ON DELETE CASCADE,
    source_id bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    number integer,
    title text NOT NULL,
    status smallint NOT NULL,
    record jsonb NOT NULL,
    PRIMARY KEY (run_id, source_id, path)
);

-- The decisions service's share of publishing: called by ingest in the transaction that makes the generation live.
-- When the run could not have evidence mined, decisions of files whose content is as before stay.
CREATE FUNCTION publish_decisions(run bigint, project bigint, generation bigint, mined boolean)
RETURNS void LANGUAGE sql AS $$
    UPDATE decisions d SET died = generation
    FROM staged_files f
    WHERE f.run_id = run AND d.source_id = f.source_id AND d.path = f.path AND d.died IS NULL
      AND (mined OR NOT EXISTS (
          SELECT FROM files x
          WHERE x.source_id = f.source_id AND x.path = f.path AND x.died IS NULL AND x.born < generation
      ))
      AND NOT EXISTS (
          SELECT FROM staged_decisions s
          WHERE s.run_id = run AND s.source_id = d.source_id AND s.path = d.path AND s.number IS NOT DISTINCT FROM d.number
            AND s.title = d.title AND s.status = d.status AND s.record = d.record
      );
    INSERT INTO decisions (project_id, source_id, package, path, number, title, status, record, born)
    SELECT project, s.source_id, o.package, s.path, s.number, s.title, s.status, s.record, generation
    FROM staged_decisions s JOIN sources o ON o.id = s.source_id
    WHERE s.run_id = run
      AND NOT EXISTS (SELECT FROM decisions d WHERE d.source_id = s.source_id AND d.path = s.path AND d.died IS NULL)
    ORDER BY s.source_id, s.path;
$$;
