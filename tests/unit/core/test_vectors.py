"""The vector file: which candidates it gives depends on the live vectors, not on how they came there."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from services.core.errors import DataLoss, InvalidArgument
from services.core.vectors import MIN_CANDIDATES, OVERFETCH, Candidates, VectorIndex, build, update

DIMENSIONS = 64

Vectors = npt.NDArray[np.float32]
Corpus = dict[int, Vectors]


def unit_vectors(count: int, seed: int) -> Vectors:
    vectors = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def corpus_with_duplicates(count: int, seed: int) -> Corpus:
    vectors = unit_vectors(count, seed)
    vectors[count // 2 : count // 2 + 100] = vectors[0]
    return dict(enumerate(vectors, start=2**40))


def written(path: Path, corpus: Corpus, seed: int | None = None) -> Path:
    items = list(corpus.items())
    if seed is not None:
        random.Random(seed).shuffle(items)
    build(path, DIMENSIONS, [columns(dict(items))])
    return path


def columns(corpus: Corpus) -> tuple[npt.NDArray[np.uint64], Vectors]:
    return np.array(list(corpus), dtype=np.uint64), np.array(list(corpus.values()), dtype=np.float32)


def pairs(candidates: Candidates) -> list[tuple[int, float]]:
    return list(zip(candidates.ids.tolist(), candidates.scores.tolist(), strict=True))


def test_cold_shuffled_and_incremental_files_give_the_same_candidates(tmp_path: Path) -> None:
    corpus = corpus_with_duplicates(1500, 1)
    first, late = dict(list(corpus.items())[:1000]), dict(list(corpus.items())[1000:])
    churned = dict(list(first.items())[200:260])
    base = written(tmp_path / "base", first | {7: unit_vectors(1, 9)[0]})
    update(base, tmp_path / "less", DIMENSIONS, [columns(late)], [7, *churned])
    update(tmp_path / "less", tmp_path / "full", DIMENSIONS, [columns(churned)], [])
    indexes = [
        VectorIndex.open(path, DIMENSIONS)
        for path in (written(tmp_path / "cold", corpus), written(tmp_path / "mixed", corpus, 3), tmp_path / "full")
    ]
    for query in [*unit_vectors(50, 2), next(iter(corpus.values()))]:
        expected, *others = [pairs(index.candidates(query, 10)) for index in indexes]
        assert all(other == expected for other in others)


def test_candidates_are_never_cut_inside_a_tie(tmp_path: Path) -> None:
    corpus = corpus_with_duplicates(1500, 1)
    query = next(iter(corpus.values()))
    found = VectorIndex.open(written(tmp_path / "index", corpus), DIMENSIONS).candidates(query, 1)
    assert len(found.ids) == 101
    assert len(set(found.scores.tolist())) == 1
    assert found.ids.tolist() == sorted(found.ids.tolist())


def test_exact_scoring_of_the_candidates_finds_the_true_top(tmp_path: Path) -> None:
    corpus = dict(enumerate(unit_vectors(5000, 4)))
    index = VectorIndex.open(written(tmp_path / "index", corpus), DIMENSIONS)
    matrix, hits = np.array(list(corpus.values())), 0
    for query in unit_vectors(50, 5):
        truth = set(np.argsort(-(matrix @ query))[:10].tolist())
        hits += len(truth & set(index.candidates(query, 10).ids.tolist()))
    assert hits >= 0.99 * 500


def test_a_vector_finds_itself(tmp_path: Path) -> None:
    corpus = dict(enumerate(unit_vectors(300, 6)))
    index = VectorIndex.open(written(tmp_path / "index", corpus), DIMENSIONS)
    assert all(index.candidates(vector, 1).ids[0] == number for number, vector in corpus.items())


def test_at_least_four_candidates_come_for_each_hit(tmp_path: Path) -> None:
    index = VectorIndex.open(written(tmp_path / "index", dict(enumerate(unit_vectors(900, 6)))), DIMENSIONS)
    query = unit_vectors(1, 7)[0]
    assert len(index.candidates(query, 1).ids) >= MIN_CANDIDATES
    assert len(index.candidates(query, 100).ids) >= OVERFETCH * 100
    assert len(index.candidates(query, 1000).ids) == 900


def test_allowed_and_excluded_ids_bound_the_candidates(tmp_path: Path) -> None:
    index = VectorIndex.open(written(tmp_path / "index", dict(enumerate(unit_vectors(900, 6)))), DIMENSIONS)
    query = unit_vectors(1, 7)[0]
    assert set(index.candidates(query, 5, allowed_ids=[3, 5, 12345]).ids.tolist()) == {3, 5}
    assert index.candidates(query, 5, allowed_ids=[]).ids.size == 0
    assert index.candidates(query, 5, allowed_ids=[12345]).ids.size == 0
    everything = [number for number, _ in pairs(index.candidates(query, 900))]
    excluded = everything[:500]
    kept = [number for number, _ in pairs(index.candidates(query, 10, excluded_ids=excluded))]
    assert kept == everything[500 : 500 + len(kept)]
    assert len(kept) >= MIN_CANDIDATES


def test_an_update_leaves_its_base(tmp_path: Path) -> None:
    base = written(tmp_path / "base", dict(enumerate(unit_vectors(50, 1))))
    before = base.read_bytes()
    update(base, tmp_path / "next", DIMENSIONS, [columns({99: unit_vectors(1, 2)[0]})], [3])
    assert base.read_bytes() == before
    assert 99 in VectorIndex.open(tmp_path / "next", DIMENSIONS)
    assert 3 not in VectorIndex.open(tmp_path / "next", DIMENSIONS)
    with pytest.raises(InvalidArgument, match="never rewritten"):
        update(base, base, DIMENSIONS, [columns({})], [])


def test_a_file_of_nothing_finds_nothing_and_can_grow(tmp_path: Path) -> None:
    build(tmp_path / "empty", DIMENSIONS, [columns({})])
    index = VectorIndex.open(tmp_path / "empty", DIMENSIONS)
    assert len(index) == 0
    assert index.candidates(unit_vectors(1, 1)[0], 5).ids.size == 0
    update(tmp_path / "empty", tmp_path / "one", DIMENSIONS, [columns({5: unit_vectors(1, 1)[0]})], [])
    assert pairs(VectorIndex.open(tmp_path / "one", DIMENSIONS).candidates(unit_vectors(1, 1)[0], 5))[0][0] == 5


def test_vectors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    good = unit_vectors(2, 1)
    ids = np.array([1, 2], dtype=np.uint64)
    with pytest.raises(InvalidArgument, match="rows of"):
        build(tmp_path / "a", DIMENSIONS + 8, [(ids, good)])
    with pytest.raises(InvalidArgument, match="multiple of 8"):
        build(tmp_path / "b", 63, [(ids, good)])
    with pytest.raises(InvalidArgument, match="finite"):
        build(tmp_path / "c", DIMENSIONS, [(ids, np.full_like(good, np.nan))])
    with pytest.raises(InvalidArgument, match="cannot be added"):
        build(tmp_path / "d", DIMENSIONS, [(np.array([1, 1], dtype=np.uint64), good)])
    base = written(tmp_path / "base", dict(enumerate(good)))
    with pytest.raises(InvalidArgument, match="not in base"):
        update(base, tmp_path / "e", DIMENSIONS, [columns({})], [9])
    with pytest.raises(InvalidArgument, match="one vector"):
        VectorIndex.open(base, DIMENSIONS).candidates(good, 5)


def test_halves_and_strided_rows_are_taken_as_they_are(tmp_path: Path) -> None:
    vectors = unit_vectors(40, 1)
    build(tmp_path / "halves", DIMENSIONS, [(np.arange(20, dtype=np.uint64), vectors[::2].astype(np.float16))])
    index = VectorIndex.open(tmp_path / "halves", DIMENSIONS)
    assert index.candidates(vectors[4].astype(np.float16), 1).ids[0] == 2


def test_damaged_files_are_a_loss_of_data(tmp_path: Path) -> None:
    base = written(tmp_path / "base", dict(enumerate(unit_vectors(20, 1))))
    with pytest.raises(DataLoss, match="dimensions"):
        VectorIndex.open(base, DIMENSIONS * 2)
    with pytest.raises(DataLoss):
        VectorIndex.open(tmp_path / "absent", DIMENSIONS)
    base.write_bytes(base.read_bytes()[:-9])
    with pytest.raises(DataLoss):
        VectorIndex.open(base, DIMENSIONS)
