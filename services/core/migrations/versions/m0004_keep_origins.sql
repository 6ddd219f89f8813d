-- Archives that callers sent. The file itself is on the shared volume, under its SHA-256.
CREATE TABLE uploads (
    project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE,
    sha256 bytea NOT NULL,
    file_name text COLLATE "C" NOT NULL,
    size_bytes bigint NOT NULL,
    -- When it was last sent: one that no source names is removed some time after.
    sent_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, sha256)
);

-- Of git: the branch, tag or commit that is wanted; empty for the default branch.
ALTER TABLE sources ADD COLUMN origin_revision text COLLATE "C" NOT NULL DEFAULT '';
-- What was last indexed: the SHA-256 of an archive, with its size and time then, or the id of a commit. NULL for folders.
ALTER TABLE sources RENAME COLUMN archive_sha256 TO indexed_digest;
ALTER TABLE sources RENAME COLUMN archive_size_bytes TO indexed_size_bytes;
ALTER TABLE sources RENAME COLUMN archive_mtime_ns TO indexed_mtime_ns;
-- Two sources may be two branches of one repository.
ALTER TABLE sources DROP CONSTRAINT sources_project_id_origin_kind_origin_location_key;
ALTER TABLE sources ADD CONSTRAINT sources_project_id_origin_key
    UNIQUE (project_id, origin_kind, origin_location, origin_revision);

-- How often the project is indexed by itself; 0 for never. Whether an edit in its folders has it indexed.
ALTER TABLE projects ADD COLUMN sync_interval_s double precision NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN watch boolean NOT NULL DEFAULT false;

-- Texts go by the hash of what they say: what a reader or decoder makes of bytes depends on more than these.
ALTER TABLE file_texts RENAME COLUMN content_hash TO text_hash;
ALTER TABLE files ADD COLUMN text_hash bytea;
UPDATE files SET text_hash = content_hash;
ALTER TABLE files ALTER COLUMN text_hash SET NOT NULL;
ALTER TABLE staged_files ADD COLUMN text_hash bytea;
UPDATE staged_files SET text_hash = content_hash;

-- What a person should know of a file although it is indexed: [{code, detail, line}].
ALTER TABLE files ADD COLUMN notes jsonb NOT NULL DEFAULT '[]';
ALTER TABLE staged_files ADD COLUMN notes jsonb NOT NULL DEFAULT '[]';
CREATE INDEX files_noted ON files (source_id, path) WHERE died IS NULL AND notes <> '[]';

-- What the manifests of the source said of the file when it was extracted, and the metadata that it has by them and by
-- what it says of itself: {key: [value]}.
ALTER TABLE files ADD COLUMN settings text NOT NULL DEFAULT '';
ALTER TABLE files ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';
ALTER TABLE staged_files ADD COLUMN settings text NOT NULL DEFAULT '';
ALTER TABLE staged_files ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}';
CREATE INDEX files_described ON files (project_id, source_id, path) WHERE metadata <> '{}';
