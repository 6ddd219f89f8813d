-- Which kinds of processors have made vectors of a model: int8 results differ between instruction sets.
CREATE TABLE embedding_processors (
    model_digest text COLLATE "C" NOT NULL,
    -- Hex SHA-256 over the vectors that the processor gives the model's probes.
    probe_fingerprint text COLLATE "C" NOT NULL,
    -- Least cosine between those and the vectors of the machine that prepared the model.
    probe_cosine real NOT NULL,
    first_used_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (model_digest, probe_fingerprint)
);
