-- Kinds of processors that have made vectors of a model: int8 results differ between instruction sets.
CREATE TABLE embedding_processors (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model_digest text COLLATE "C" NOT NULL,
    -- Hex SHA-256 over the vectors that the processor gives the model's probes.
    probe_fingerprint text COLLATE "C" NOT NULL,
    -- Least cosine between those and the vectors of the machine that prepared the model.
    probe_cosine real NOT NULL,
    UNIQUE (model_digest, probe_fingerprint)
);

-- Which kind made the vector; NULL where that is not known: before this, and in imported caches.
ALTER TABLE vectors ADD COLUMN processor_id integer REFERENCES embedding_processors;
CREATE INDEX vectors_processor ON vectors (processor_id) WHERE processor_id IS NOT NULL;
ALTER TABLE staged_vectors ADD COLUMN processor_id integer REFERENCES embedding_processors;
