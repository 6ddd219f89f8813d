"""Fidelity: what it says about equal, turned and shuffled vectors."""

from __future__ import annotations

import numpy as np

from services.embed.preparation.fidelity import measure


def test_equal_vectors_agree_wholly_whatever_their_length() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 16)).astype(np.float32)
    measured = measure(vectors, vectors * 3)
    assert (measured.texts, measured.mean_cosine, measured.min_cosine, measured.top10_overlap) == (40, 1.0, 1.0, 1.0)


def test_a_rotation_keeps_neighbours_and_loses_cosine() -> None:
    generator = np.random.default_rng(2)
    vectors = generator.normal(size=(40, 16)).astype(np.float32)
    turn = np.linalg.qr(generator.normal(size=(16, 16)))[0].astype(np.float32)
    measured = measure(vectors, vectors @ turn)
    assert measured.top10_overlap > 0.99
    assert measured.mean_cosine < 0.9


def test_one_bad_vector_shows_in_the_minimum() -> None:
    vectors = np.random.default_rng(3).normal(size=(40, 16)).astype(np.float32)
    changed = vectors.copy()
    changed[7] = -changed[7]
    measured = measure(vectors, changed)
    assert measured.min_cosine == -1.0
    assert measured.mean_cosine > 0.9
    assert measured.top10_overlap < 1.0


def test_fewer_texts_than_neighbours_still_compare() -> None:
    vectors = np.eye(3, dtype=np.float32)
    assert measure(vectors, vectors).top10_overlap == 1.0
