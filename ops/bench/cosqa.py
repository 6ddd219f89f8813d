"""Quality of the retrieval kernel on CoSQA dev: 500 web queries, 6,267 Python functions, one right one for each.

    python ops/bench/cosqa.py --model DIRECTORY [--data DIRECTORY] [--cache DIRECTORY] [--form FORM]... [--sweep]

The legs are those of the search service without its transport: the tantivy index with exact BM25, and the TurboQuant
file with exact scores from half-precision vectors. Each function is one document: its name, its text, and what is
embedded, which ``--form`` chooses; ``--sweep`` prints many weights and depths. Every measure is over the first DEPTH
hits of a leg (a fused list has up to twice as many); a query whose function is further down counts 0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import numpy.typing as npt

from ops.bench.metrics import interval, ndcg, paired_difference, recall, reciprocal_rank
from services.core import lexical, vectors
from services.core.text import query_tokens, tokens
from services.embed.recipe import Purpose
from services.embed.verify import VerifiedModel, verify
from services.search.fusion import Leg, Scored, reciprocal_rank_fusion, weighted_score_interpolation

LANGUAGE = "python"
DEPTH = 100
CUT = 10

Ranking = list[Scored]
Vectors = npt.NDArray[np.float32]

_NAME = re.compile(r"def\s+(\w+)")


@dataclass(frozen=True, slots=True)
class Function:
    """One document of the corpus."""

    id: int
    name: str
    code: str

    @property
    def key(self) -> str:
        return f"{self.id:06d}"


@dataclass(frozen=True, slots=True)
class Query:
    """One query and the key of the function that answers it."""

    text: str
    gold: str


#: What is embedded of a function.
FORMS: dict[str, Callable[[Function], str]] = {
    "name + code": lambda function: f"{function.name}\n{function.code}",
    "code": lambda function: function.code,
    "words of name + code": lambda function: f"{' '.join(function.name.split('_')).strip()}\n{function.code}",
    "path + name + code": lambda function: f"corpus > f{function.id:06d}.{function.name}\n{function.code}",
}


def default_data() -> Path:
    """Return where the evaluation data lies unless it is named."""
    root = os.environ.get("UNDERCROFT_EVAL")
    return (Path(root) if root else Path(__file__).resolve().parents[3] / "shared" / "eval") / "cosqa"


def read_functions(data: Path) -> list[Function]:
    """Read the corpus. Names are found by pattern: 20 of the functions do not parse."""
    rows = [json.loads(line) for line in (data / "codes.jsonl").read_text("utf-8").splitlines()]
    return [Function(row["id"], (_NAME.search(row["code"]) or ("", ""))[1], row["code"]) for row in rows]


def read_queries(data: Path) -> list[Query]:
    """Read the queries with their right answers."""
    rows = [json.loads(line) for line in (data / "queries-dev.jsonl").read_text("utf-8").splitlines()]
    return [Query(row["query"], f"{row['gold']:06d}") for row in rows]


def lexical_rankings(functions: Sequence[Function], queries: Sequence[Query], folder: Path) -> list[Ranking]:
    """Rank by the lexical index."""
    documents = (
        lexical.LexicalDocument(
            # Every document says its language, as chunks do: so "python" in a query tells nothing apart here.
            function.id,
            name=tokens(function.name),
            title=tokens(LANGUAGE),
            body=tokens(function.code),
        )
        for function in functions
    )
    lexical.build(folder / "lexical", documents)
    index = lexical.LexicalIndex.open(folder / "lexical")
    return [
        [Scored(f"{hit.id:06d}", hit.score) for hit in index.search(query_tokens(query.text), DEPTH).hits][:DEPTH]
        for query in queries
    ]


def embed(model: VerifiedModel, texts: Sequence[str], purpose: Purpose, cache: Path) -> Vectors:
    """Embed texts, or read their vectors from the cache."""
    digest = hashlib.sha256(json.dumps([model.manifest.digest, purpose, list(texts)]).encode()).hexdigest()
    path = cache / f"{digest}.npy"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        np.save(path, model.engine.embed(texts, purpose).vectors)
    loaded: Vectors = np.load(path)
    return loaded


def dense_rankings(found: Vectors, asked: Vectors, folder: Path) -> list[Ranking]:
    """Rank by the vector file's candidates and exact inner products of half-precision vectors, as the store does."""
    path = Path(tempfile.mkdtemp(dir=folder)) / "vectors.tq"
    vectors.build(path, found.shape[1], [(np.arange(len(found), dtype=np.uint64), found)])
    index = vectors.VectorIndex.open(path, found.shape[1])
    stored = found.astype(np.float16).astype(np.float64)
    rankings = []
    for vector in asked:
        ids = index.candidates(vector, DEPTH).ids.astype(np.int64)
        scores = stored[ids] @ vector.astype(np.float64)
        order = np.lexsort((ids, -scores))[:DEPTH]
        rankings.append([Scored(f"{ids[place]:06d}", float(scores[place])) for place in order])
    return rankings


@dataclass(frozen=True, slots=True)
class Measured:
    """A way to rank, with its reciprocal rank for each query."""

    name: str
    reciprocal_ranks: list[float]

    def print(self, keys: Sequence[Sequence[str]], queries: Sequence[Query]) -> None:
        pairs = list(zip(keys, queries, strict=True))
        at_cut = np.mean([recall(ranking, {query.gold}, CUT) for ranking, query in pairs])
        gain = np.mean([ndcg(ranking, {query.gold}, CUT) for ranking, query in pairs])
        halves = [np.mean(self.reciprocal_ranks[start::2]) for start in (0, 1)]
        print(
            f"{self.name:34} {interval(self.reciprocal_ranks)!s:22} {at_cut:.3f}     {gain:.3f}"
            f"    {halves[0]:.3f} {halves[1]:.3f}",
            flush=True,
        )


def measure(name: str, rankings: Sequence[Sequence[str]], queries: Sequence[Query]) -> Measured:
    """Measure one way to rank, and print its line."""
    ranks = [reciprocal_rank(keys, {query.gold}) for keys, query in zip(rankings, queries, strict=True)]
    measured = Measured(name, ranks)
    measured.print(rankings, queries)
    return measured


def keys_of(rankings: Sequence[Ranking]) -> list[list[str]]:
    """Return the keys alone."""
    return [[hit.key for hit in ranking] for ranking in rankings]


def fused(
    kind: str, weight: float, lexical_hits: Sequence[Ranking], dense_hits: Sequence[Ranking], depth: int
) -> list[list[str]]:
    """Fuse both legs for each query; ``weight`` is the lexical share of 1."""
    results = []
    for words, meaning in zip(lexical_hits, dense_hits, strict=True):
        legs = [Leg("lexical", weight, words[:depth]), Leg("dense", 1.0 - weight, meaning[:depth])]
        if kind == "rrf":
            hits = reciprocal_rank_fusion(legs)
        else:
            floors = {
                "wsi": {},
                "wsi lexical floor 0": {"lexical": 0.0},
                "wsi floors 0": {"lexical": 0.0, "dense": 0.0},
            }
            hits = weighted_score_interpolation(legs, floors=floors[kind])
        results.append([hit.key for hit in hits])
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="prepared model directory")
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "undercroft-cosqa")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--form", action="append", choices=list(FORMS), help="what is embedded; may be repeated")
    parser.add_argument("--sweep", action="store_true", help="compare weights and depths")
    arguments = parser.parse_args()
    functions, queries = read_functions(arguments.data), read_queries(arguments.data)
    model = verify(arguments.model, threads=arguments.threads)
    asked = embed(model, [query.text for query in queries], Purpose.QUERY, arguments.cache)
    print(f"CoSQA dev, {len(queries)} queries, {len(functions)} functions; model {model.manifest.digest[:12]}")
    print(f"{'':34} {'MRR@100 [95 %]':22} recall@10 nDCG@10  MRR of halves")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = lexical_rankings(functions, queries, folder)
        by_words = measure("lexical", keys_of(words), queries)
        for form in arguments.form or list(FORMS)[:1]:
            print(f"-- embedded: {form}")
            found = embed(model, [FORMS[form](function) for function in functions], Purpose.PASSAGE, arguments.cache)
            meaning = dense_rankings(found, asked, folder)
            by_meaning = measure("dense", keys_of(meaning), queries)
            report(words, meaning, queries, (by_words, by_meaning), sweep=arguments.sweep)


def report(
    words: Sequence[Ranking],
    meaning: Sequence[Ranking],
    queries: Sequence[Query],
    legs: tuple[Measured, Measured],
    *,
    sweep: bool,
) -> None:
    """Print the fusions and how the best of them stands to each leg."""
    measured = []
    kinds = ("rrf", "wsi", "wsi lexical floor 0", "wsi floors 0") if sweep else ("rrf", "wsi")
    weights = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5) if sweep else (0.2, 0.5)
    for kind in kinds:
        for weight in weights:
            for depth in (50, DEPTH) if sweep else (DEPTH,):
                keys = fused(kind, weight, words, meaning, depth)
                measured.append(measure(f"{kind}, lexical {weight}, depth {depth}", keys, queries))
    best = max(measured, key=lambda each: float(np.mean(each.reciprocal_ranks)))
    for leg in legs:
        print(f"{best.name} minus {leg.name}: {paired_difference(best.reciprocal_ranks, leg.reciprocal_ranks)}")


if __name__ == "__main__":
    main()
