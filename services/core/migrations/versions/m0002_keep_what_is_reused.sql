-- What of a project's packages is embedded: [{glob, tier}], the first that fits counts.
ALTER TABLE projects ADD COLUMN tiers jsonb NOT NULL DEFAULT '[]';
ALTER TABLE projects ADD COLUMN index_dependencies boolean NOT NULL DEFAULT false;
-- When a run last read every file, whatever its size and time said.
ALTER TABLE projects ADD COLUMN verified_at timestamptz NOT NULL DEFAULT now();

-- A dependency: added and removed by runs as the project declares it.
ALTER TABLE sources ADD COLUMN managed boolean NOT NULL DEFAULT false;
-- What the source's live chunks were made with.
ALTER TABLE sources ADD COLUMN indexed_tier text NOT NULL DEFAULT 'full';
-- Of an archive: SHA-256 of what was last indexed, and its size and time then. NULL before, and for folders.
ALTER TABLE sources ADD COLUMN archive_sha256 bytea;
ALTER TABLE sources ADD COLUMN archive_size_bytes bigint;
ALTER TABLE sources ADD COLUMN archive_mtime_ns bigint;

ALTER TABLE sidecars ADD COLUMN created_at timestamptz NOT NULL DEFAULT now();

-- Id that git gives the content: where git's index vouches for a file, it need not be read.
ALTER TABLE file_hints ADD COLUMN git_blob bytea;

-- A run that is taken up again goes on with the files that are staged completely, if the pipeline is the same.
ALTER TABLE staged_files ADD COLUMN complete boolean NOT NULL DEFAULT false;
ALTER TABLE operations ADD COLUMN staged_pipeline bytea;

-- Whether a content lives is asked for each content that a run adds or ends.
CREATE INDEX chunks_live_content ON chunks (content_id) WHERE died IS NULL;

-- Since when no content has the vector's text; NULL while one has.
ALTER TABLE vectors ADD COLUMN unused_since timestamptz;
CREATE INDEX vectors_unused ON vectors (unused_since) WHERE unused_since IS NOT NULL;
CREATE INDEX vectors_model ON vectors (model_digest);

-- Vectors that a run with re-embed has made. They become the cache when it publishes, and until then nobody's.
CREATE TABLE staged_vectors (
    run_id bigint NOT NULL REFERENCES operations ON DELETE CASCADE,
    fingerprint bytea NOT NULL,
    -- The id that the vector will have. NULL: it came out as the cache has it.
    id bigint,
    embedding halfvec,
    PRIMARY KEY (run_id, fingerprint)
);
CREATE INDEX staged_vectors_id ON staged_vectors (id) WHERE id IS NOT NULL;

-- What such a run replaced: generations published before read them under their old ids.
CREATE TABLE superseded_vectors (
    id bigint PRIMARY KEY,
    fingerprint bytea NOT NULL,
    model_digest text NOT NULL,
    embedding halfvec NOT NULL,
    superseded_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX superseded_vectors_fingerprint ON superseded_vectors (fingerprint);

-- Every vector that some generation may read.
CREATE VIEW readable_vectors AS
SELECT id, fingerprint, embedding FROM vectors
UNION ALL
SELECT id, fingerprint, embedding FROM superseded_vectors;
