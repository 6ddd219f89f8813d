"""The lexical index: whatever edits led to it, it answers as a plain reading of the formula does."""

from __future__ import annotations

import math
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.core.errors import DataLoss, InvalidArgument, NotReady
from services.core.lexical import FIELD_WEIGHTS, LexicalDocument, LexicalHits, LexicalIndex, build, update
from services.core.lexical.layout import STATE_FILE
from services.core.lexical.writer import MAX_SEGMENTS

Corpus = Mapping[int, LexicalDocument]

# Few terms and many documents, so that ties, duplicates and very common terms occur all the time.
_terms = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "数据", "x1"]), max_size=50)
_documents = st.builds(
    lambda name, body: LexicalDocument(0, name=name[:3], title=name[3:5], body=body), name=_terms, body=_terms
)
_edits = st.lists(st.dictionaries(st.integers(0, 40), st.none() | _documents, max_size=12), min_size=1, max_size=9)


def stored_length(length: int) -> int:
    """Round down to the lengths that one byte can hold, as Lucene does: three bits of mantissa above 24."""
    if length < 40:
        return length
    shift = (length - 24).bit_length() - 4
    return 24 + ((length - 24) >> shift << shift)


def bags(corpus: Corpus) -> dict[int, Counter[str]]:
    """Count each document's terms, a term of the name as often as its weight says."""
    counted: dict[int, Counter[str]] = {}
    for number, document in corpus.items():
        counted[number] = Counter()
        for field, weight in FIELD_WEIGHTS.items():
            for term in getattr(document, field):
                counted[number][term] += weight
    return counted


def reference(documents: Mapping[int, Counter[str]], terms: Collection[str]) -> dict[int, float]:
    """Score every document by the formula, with nothing shared with the product."""
    lengths = {number: sum(bag.values()) for number, bag in documents.items()}
    mean = sum(lengths.values()) / max(1, len(documents))
    scores: dict[int, float] = {}
    for term in sorted(set(terms), key=str.encode):
        having = {number: bag[term] for number, bag in documents.items() if term in bag}
        idf = math.log(1.0 + (len(documents) - len(having) + 0.5) / (len(having) + 0.5))
        for number, count in having.items():
            norm = 1.2 * (1.0 - 0.75 + 0.75 * (stored_length(lengths[number]) / mean))
            scores[number] = scores.get(number, 0.0) + idf * (count * (1.2 + 1.0)) / (count + norm)
    return scores


def expected_hits(scores: Mapping[int, float], limit: int) -> list[tuple[int, float]]:
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [item for item in ranked if item[1] >= ranked[min(limit, len(ranked)) - 1][1]]


def found(answer: LexicalHits) -> list[tuple[int, float]]:
    return [(hit.id, hit.score) for hit in answer.hits]


def cold(corpus: Corpus, directory: Path, order: random.Random | None = None) -> Path:
    documents = list(corpus.values())
    if order:
        order.shuffle(documents)
    build(directory, documents)
    return directory


def published_copy(directory: Path, names: Sequence[str], to: Path) -> Path:
    """Copy exactly the files that were named: what a reader of the shared volume gets."""
    to.mkdir()
    for name in names:
        shutil.copyfile(directory / name, to / name)
    return to


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Make a folder in memory where there is one: tantivy syncs every file, and disks make these tests wait.

    What can't be removed stays, as with the product's own folders: an index that was opened a moment ago may be looked
    at by tantivy's thread once more, which makes a lock file.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True)


@pytest.fixture
def space() -> Iterator[Path]:
    with scratch() as folder:
        yield Path(folder)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(edits=_edits, limit=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_any_history_of_edits_scores_as_the_formula_says(
    edits: list[dict[int, LexicalDocument | None]], limit: int, seed: int
) -> None:
    with scratch() as folder:
        space, corpus = Path(folder), dict[int, LexicalDocument]()
        base = cold(corpus, space / "0")
        for step, edit in enumerate(edits, 1):
            deleted = [number for number in edit if number in corpus]
            added = [
                LexicalDocument(number, document.name, document.title, document.body)
                for number, document in edit.items()
                if document is not None
            ]
            for number in deleted:
                del corpus[number]
            corpus |= {document.id: document for document in added}
            files = update(base, space / f"{step}", added, deleted)
            base = published_copy(space / f"{step}", [file.name for file in files], space / f"{step}p")
        rebuilt = LexicalIndex.open(cold(corpus, space / "cold", random.Random(seed)))
        index = LexicalIndex.open(base)
        assert len(index) == len(rebuilt) == len(corpus)
        counted = bags(corpus)
        for terms in (["alpha"], ["delta", "beta"], ["x1", "alpha", "数据", "gamma", "alpha"], ["absent", "gamma"]):
            expected = expected_hits(reference(counted, terms), limit)
            assert found(index.search(terms, limit)) == expected
            assert found(rebuilt.search(terms, limit)) == expected


@settings(max_examples=25, deadline=None)
@given(
    corpus=st.lists(_documents, max_size=60),
    allowed=st.none() | st.sets(st.integers(0, 80)),
    excluded=st.sets(st.integers(0, 80)),
    limit=st.integers(1, 70),
    direct=st.sampled_from([0, 4096]),
)
def test_allowed_and_excluded_ids_bound_the_hits_and_leave_scores(
    corpus: list[LexicalDocument], allowed: set[int] | None, excluded: set[int], limit: int, direct: int
) -> None:
    documents = {n: LexicalDocument(n, d.name, d.title, d.body) for n, d in enumerate(corpus)}
    terms = ["alpha", "gamma", "x1"]
    scores = reference(bags(documents), terms)
    visible = {n: s for n, s in scores.items() if (allowed is None or n in allowed) and n not in excluded}
    with scratch() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.core.lexical.reader.MAX_DIRECT_IDS", direct)
        index = LexicalIndex.open(cold(documents, Path(folder) / "index"))
        answer = index.search(terms, limit, allowed_ids=allowed, excluded_ids=excluded)
        assert found(answer) == (expected_hits(visible, limit) if visible else [])
        assert answer.matches == len(scores)


def zipf_corpus(size: int, seed: int) -> dict[int, LexicalDocument]:
    order = random.Random(seed)
    words = [f"w{n}" for n in range(2000)]
    weights = [1 / (n + 1) for n in range(2000)]
    return {
        number: LexicalDocument(number, body=order.choices(words, weights, k=order.choice((5, 30, 200))))
        for number in range(size)
    }


@pytest.mark.parametrize("shortest_first", [False, True])
def test_dead_documents_leave_no_trace_in_a_larger_corpus(
    space: Path, shortest_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest or the shortest die, so that tantivy's mean length and frequencies are far from the live ones."""
    # Without a margin every answer rests on the bound.
    monkeypatch.setattr("services.core.lexical.reader.FETCH_MARGIN", 0)
    corpus = zipf_corpus(2000, 1)
    base = cold(corpus, space / "base")
    doomed = sorted(corpus, key=lambda n: len(corpus[n].body), reverse=not shortest_first)[:380]
    fresh = {n + 10_000: LexicalDocument(n + 10_000, body=d.body) for n, d in zipf_corpus(100, 2).items()}
    update(base, space / "next", fresh.values(), doomed)
    live = bags({n: d for n, d in corpus.items() if n not in set(doomed)} | fresh)
    index = LexicalIndex.open(space / "next")
    order = random.Random(3)
    for _ in range(40):
        terms = [f"w{min(1999, int(order.paretovariate(0.4)))}" for _ in range(order.randint(1, 9))]
        scores = reference(live, terms)
        assert found(index.search(terms, 5)) == (expected_hits(scores, 5) if scores else [])


def test_an_update_leaves_its_base_and_the_bytes_that_it_keeps(space: Path) -> None:
    corpus = zipf_corpus(400, 1)
    before = build(space / "base", corpus.values())
    contents = {path.name: path.read_bytes() for path in (space / "base").iterdir()}
    after = update(space / "base", space / "next", [LexicalDocument(9999, body=["fresh"])], [3])
    assert {path.name: path.read_bytes() for path in (space / "base").iterdir()} == contents
    new = {file.sha256 for file in after} - {file.sha256 for file in before}
    assert sum(file.size_bytes for file in after if file.sha256 in new) < 0.1 * sum(file.size_bytes for file in after)
    assert found(LexicalIndex.open(space / "base").search(["fresh"], 5)) == []
    assert [hit.id for hit in LexicalIndex.open(space / "next").search(["fresh"], 5).hits] == [9999]


def test_many_updates_keep_few_segments_and_few_dead_rows(space: Path) -> None:
    corpus = zipf_corpus(200, 1)
    base = cold(corpus, space / "0")
    for step in range(1, 20):
        files = update(base, space / f"{step}", [LexicalDocument(step, body=["fresh", f"n{step}"])], [step])
        base = space / f"{step}"
        assert sum(file.name.endswith(".term") for file in files) <= MAX_SEGMENTS
        assert sum(file.name.startswith("forward") for file in files) <= MAX_SEGMENTS
        corpus[step] = LexicalDocument(step, body=["fresh", f"n{step}"])
    index = LexicalIndex.open(base)
    assert len(index) == 200
    assert found(index.search(["fresh", "w1"], 40)) == expected_hits(reference(bags(corpus), ["fresh", "w1"]), 40)


def test_an_index_of_nothing_is_healthy_and_empty(space: Path) -> None:
    base = cold({}, space / "empty")
    assert LexicalIndex.open(base).search(["alpha"], 5).hits == ()
    update(base, space / "blank", [LexicalDocument(1)], [])
    assert LexicalIndex.open(space / "blank").search(["alpha"], 5).hits == ()
    update(space / "blank", space / "gone", [], [1])
    assert len(LexicalIndex.open(space / "gone")) == 0


def test_no_evidence_gives_no_hits_and_names_the_words(space: Path) -> None:
    documents = {1: LexicalDocument(1, body=["connect", "pool"]), 2: LexicalDocument(2, body=["cursor"])}
    index = LexicalIndex.open(cold(documents, space / "index"))
    answer = index.search(["conect", "zzz"], 5)
    assert (answer.hits, answer.unknown, answer.matches) == ((), ("conect", "zzz"), 0)
    assert index.nearest_terms("conect", 3) == ["connect"]
    assert index.nearest_terms("cur", 3) == ["cursor"]
    assert index.nearest_terms("zzz", 3) == []


def test_hits_say_which_terms_they_have_and_what_each_adds(space: Path) -> None:
    documents = {1: LexicalDocument(1, name=["pool"], body=["open"]), 2: LexicalDocument(2, body=["pool", "close"])}
    answer = LexicalIndex.open(cold(documents, space / "index")).search(["pool", "open", "nothing"], 5)
    first, second = answer.hits
    assert [term for term, _ in first.terms] == ["open", "pool"]
    assert [term for term, _ in second.terms] == ["pool"]
    assert sum(part for _, part in first.terms) == first.score
    assert answer.frequencies == {"open": 1, "pool": 2}


def test_all_documents_that_tie_at_the_cut_come_back(space: Path) -> None:
    documents = {n: LexicalDocument(n, body=["same", "words"]) for n in range(500)}
    answer = LexicalIndex.open(cold(documents, space / "index")).search(["same"], 10)
    assert [hit.id for hit in answer.hits] == list(range(500))


def test_a_very_long_query_keeps_its_rarest_terms_in_any_order(space: Path) -> None:
    index = LexicalIndex.open(cold(zipf_corpus(500, 4), space / "index"))
    terms = [f"w{n}" for n in range(150)]
    forwards, backwards = index.search(terms, 10), index.search(terms[::-1], 10)
    assert forwards == backwards
    assert len(forwards.frequencies) == 64
    assert max(forwards.frequencies.values()) <= min(index.frequency(term) for term in forwards.ignored)


def test_threads_get_one_answer(space: Path) -> None:
    index = LexicalIndex.open(cold(zipf_corpus(2000, 5), space / "index"))
    expected = index.search(["w1", "w5", "w77"], 20)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: index.search(["w77", "w5", "w1"], 20), range(50)))
    assert all(answer == expected for answer in answers)


def test_wrong_edits_are_refused(space: Path) -> None:
    base = cold({1: LexicalDocument(1, body=["a"])}, space / "base")
    with pytest.raises(InvalidArgument, match="delete"):
        update(base, space / "a", [], [2])
    with pytest.raises(InvalidArgument, match="already"):
        update(base, space / "b", [LexicalDocument(1, body=["b"])], [])
    with pytest.raises(InvalidArgument, match="twice"):
        build(space / "c", [LexicalDocument(1), LexicalDocument(1)])
    with pytest.raises(InvalidArgument, match="not a term"):
        build(space / "d", [LexicalDocument(1, body=["two words"])])
    with pytest.raises(InvalidArgument, match="not empty"):
        build(base, [])


def test_files_of_another_release_are_refused_in_words(space: Path) -> None:
    base = cold({1: LexicalDocument(1, body=["a"])}, space / "base")
    state = (base / STATE_FILE).read_text()
    (base / STATE_FILE).write_text(state.replace("snowball", "other"))
    with pytest.raises(NotReady, match="tokenizer"):
        LexicalIndex.open(base)


@pytest.mark.parametrize("pattern", [STATE_FILE, "meta.json", "forward-*.bin", "dead-*.bin", "*.term"])
def test_missing_files_are_a_loss_of_data(space: Path, pattern: str) -> None:
    cold(zipf_corpus(50, 1), space / "base")
    update(space / "base", space / "next", [], [1])
    for path in (space / "next").glob(pattern):
        path.unlink()
    with pytest.raises(DataLoss):
        LexicalIndex.open(space / "next")


def test_cut_forward_files_are_a_loss_of_data(space: Path) -> None:
    base = cold(zipf_corpus(50, 1), space / "base")
    path = next(base.glob("forward-*.bin"))
    data = path.read_bytes()
    for size in (0, 7, 40, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(DataLoss):
            LexicalIndex.open(base)
