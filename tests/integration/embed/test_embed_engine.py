"""The engine: vectors depend on the text alone, and nothing is truncated in silence."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from services.embed.backends import Lane
from services.embed.engine import Engine
from services.embed.preparation import PreparedModel
from services.embed.recipe import Purpose
from services.embed.shapes import bucket_of
from services.embed.verify import verify


@pytest.fixture(scope="module")
def engine(quantized_model: PreparedModel) -> Engine:
    return verify(quantized_model.directory, threads=2).engine


def texts_of(seed: int, count: int) -> list[str]:
    generator = random.Random(seed)
    return [
        "".join(generator.choice("abcdefgh (){}=.") for _ in range(generator.randrange(0, 120))) for _ in range(count)
    ]


def vectors_alone(engine: Engine, texts: Sequence[str]) -> list[bytes]:
    return [engine.embed([text], Purpose.PASSAGE).vectors[0].tobytes() for text in texts]


def test_alone_in_bulk_and_shuffled_are_the_same_to_the_bit(engine: Engine) -> None:
    texts = texts_of(1, 60)
    alone = vectors_alone(engine, texts)
    for seed in range(3):
        order = list(range(len(texts)))
        random.Random(seed).shuffle(order)
        vectors = engine.embed([texts[index] for index in order], Purpose.PASSAGE).vectors
        assert [row.tobytes() for row in vectors] == [alone[index] for index in order]


def test_every_width_and_both_lanes_give_the_same_bits(engine: Engine) -> None:
    """The engine's own check at start looks at one bucket; this looks at all of them, at the widths that are used."""
    generator = random.Random(7)
    limit = engine.recipe.max_length_tokens
    for bucket in sorted({bucket_of(length, limit) for length in range(1, limit + 1)}):
        rows = [
            np.array([generator.randrange(4, 60) for _ in range(bucket - generator.randrange(8))], dtype=np.int64)
            for _ in range(engine.most_rows(bucket))
        ]
        alone = [engine.infer([row], bucket, Lane.QUERY)[0].tobytes() for row in rows]
        width = 1
        while width <= engine.most_rows(bucket):
            chosen = generator.sample(range(len(rows)), width)
            together = engine.infer([rows[index] for index in chosen], bucket, Lane.BULK)
            assert [row.tobytes() for row in together] == [alone[index] for index in chosen], (bucket, width)
            width *= 2


def test_concurrent_callers_get_the_same_bits(engine: Engine) -> None:
    texts = texts_of(2, 24)
    alone = vectors_alone(engine, texts)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: engine.embed(texts, Purpose.PASSAGE).vectors, range(6)))
    for vectors in answers:
        assert [row.tobytes() for row in vectors] == alone


def test_bulk_work_steps_back_behind_queries_and_everything_else(quantized_model: PreparedModel) -> None:
    before = _niceness_of_threads()
    engine = verify(quantized_model.directory, threads=2).engine
    engine.embed(texts_of(5, 8), Purpose.PASSAGE)
    started = [nice for thread, nice in _niceness_of_threads().items() if thread not in before]
    assert sum(nice > 0 for nice in started) >= engine.threads
    assert os.getpriority(os.PRIO_PROCESS, 0) == before[os.getpid()]


def _niceness_of_threads() -> dict[int, int]:
    found = {}
    for name in os.listdir("/proc/self/task"):
        # Threads of tests before this one may end just now.
        with contextlib.suppress(ProcessLookupError):
            found[int(name)] = os.getpriority(os.PRIO_PROCESS, int(name))
    return found


def test_how_many_threads_there_are_changes_nothing(engine: Engine, quantized_model: PreparedModel) -> None:
    texts = texts_of(3, 20)
    single = verify(quantized_model.directory, threads=1).engine
    assert vectors_alone(single, texts) == vectors_alone(engine, texts)


def test_float_kernels_are_independent_of_their_neighbours_too(tiny_model: PreparedModel) -> None:
    engine = verify(tiny_model.directory, threads=2).engine
    texts = texts_of(4, 60)
    vectors = engine.embed(texts, Purpose.PASSAGE).vectors
    assert [row.tobytes() for row in vectors] == vectors_alone(engine, texts)


def test_the_padding_and_truncation_of_the_tokenizer_file_do_not_count(engine: Engine) -> None:
    long = engine.tokenize(["a b c d e f g h i j k l m"], Purpose.PASSAGE)[0]
    assert (len(long.ids), long.count, long.is_truncated) == (15, 15, False)
    assert len(engine.tokenize(["a"], Purpose.PASSAGE)[0].ids) == 3


def test_truncation_keeps_the_last_special_token_and_is_told(engine: Engine) -> None:
    limit = engine.recipe.max_length_tokens
    exact, above = engine.tokenize(["a " * (limit - 2), "a " * (limit - 1)], Purpose.PASSAGE)
    assert (exact.count, exact.is_truncated) == (limit, False)
    assert (above.count, len(above.ids), above.is_truncated) == (limit + 1, limit, True)
    assert above.ids[-1] == exact.ids[-1]
    assert np.array_equal(above.ids, exact.ids)


def test_a_query_carries_its_prompt_and_a_passage_does_not(engine: Engine) -> None:
    query, passage = (engine.tokenize(["abc"], purpose)[0] for purpose in (Purpose.QUERY, Purpose.PASSAGE))
    assert query.ids.tolist() == engine.tokenize(["q abc"], Purpose.PASSAGE)[0].ids.tolist()
    assert query.count == passage.count + 1


@pytest.mark.parametrize("text", ["", " ", "\x00", "\u200b", "漢字", "é" * 500, "a" * 5000])
def test_odd_texts_have_finite_vectors(engine: Engine, text: str) -> None:
    vector = engine.embed([text], Purpose.PASSAGE).vectors[0]
    assert np.isfinite(vector).all()
    assert float(np.linalg.norm(vector)) == pytest.approx(1.0, abs=1e-4)


def test_no_texts_are_no_vectors(engine: Engine) -> None:
    assert engine.embed([], Purpose.PASSAGE).vectors.shape == (0, engine.recipe.dimensions)
