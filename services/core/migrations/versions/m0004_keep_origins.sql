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

-- Of git: the branch, tag or commit that is wanted (empty: the default branch), and the commit that was last indexed.
ALTER TABLE sources ADD COLUMN origin_revision text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE sources ADD COLUMN indexed_commit text COLLATE "C" NOT NULL DEFAULT '';
-- Two sources may be two branches of one repository.
ALTER TABLE sources DROP CONSTRAINT sources_project_id_origin_kind_origin_location_key;
ALTER TABLE sources ADD CONSTRAINT sources_project_id_origin_key
    UNIQUE (project_id, origin_kind, origin_location, origin_revision);
