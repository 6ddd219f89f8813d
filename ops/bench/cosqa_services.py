"""CoSQA dev through the running services: quality of every preset, and latency at the search server.

    python ops/bench/cosqa_services.py [--data DIRECTORY] [--keep HOME]

One file per function is indexed (files that Python 3.11 can't parse count too), and every query is asked over gRPC. A
function's rank is that of the first hit in its file, among at most DEPTH hits; a query whose function is not among them
counts 0. ``--keep`` uses an appliance that is up, and leaves the project there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import grpc
import numpy as np
from undercroft.client import explain
from undercroft.search.v1 import search_service_pb2

from ops.bench.metrics import interval, ndcg, paired_difference, recall, reciprocal_rank
from tests.support.appliance import ROOT, Appliance, running_appliance

DEPTH = 100
# Presets ask the same queries, and latency counts the inference of each.
_UNCACHED = {"UNDERCROFT_QUERY_CACHE_ENTRIES": "0"}


def read_lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_corpus(data: Path, folder: Path) -> None:
    """Write one file per function, unless that has been done."""
    folder.mkdir(exist_ok=True)
    for code in read_lines(data / "codes.jsonl"):
        path = folder / f"f{code['id']:05}.py"
        if not path.exists():
            path.write_text(str(code["code"]) + "\n")


def ranking(appliance: Appliance, query: str, preset: str) -> tuple[list[int], int]:
    """Return the ids of the functions found, best first, and the time at the server in microseconds."""
    response = appliance.search(query, "cosqa", preset=preset, page_size=DEPTH, budget_tokens=1)
    found = dict.fromkeys(int(hit.place.path[1:6]) for hit in response.hits)
    return list(found), response.timing.total_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("UNDERCROFT_EVAL", ROOT.parent / "shared" / "eval")) / "cosqa"
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--keep", type=Path, help="data directory of an appliance that is up")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        sys.exit(f"no data in {arguments.data}: name the folder with --data")
    queries = read_lines(arguments.data / "queries-dev.jsonl")
    with ExitStack() as stack:
        if arguments.keep:
            appliance, folder = Appliance(arguments.keep), arguments.keep.parent / "cosqa"
        else:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            appliance, folder = stack.enter_context(running_appliance(scratch / "home", _UNCACHED)), scratch / "cosqa"
        write_corpus(arguments.data, folder)
        try:
            appliance.create_project("cosqa", [folder])
        except grpc.RpcError as error:
            if explain(error).code != "ALREADY_EXISTS":
                raise
        start = time.perf_counter()
        report = appliance.index("cosqa")
        print(
            f"indexed {report.files.new} new files, {report.chunks.added} chunks, {report.embeddings.embedded} embedded"
            f" in {time.perf_counter() - start:.0f} s"
        )
        presets = appliance.client.search.ListPresets(search_service_pb2.ListPresetsRequest())
        scores: dict[str, list[float]] = {}
        for preset in presets.presets:
            rankings = [ranking(appliance, str(one["query"]), preset.name)[0] for one in queries]
            gold = [[one["gold"]] for one in queries]
            pairs = list(zip(rankings, gold, strict=True))
            scores[preset.name] = [reciprocal_rank(found, right) for found, right in pairs]
            at_10 = np.mean([recall(found, right, 10) for found, right in pairs])
            gain = np.mean([ndcg(found, right, 10) for found, right in pairs])
            print(f"{preset.name:<10} MRR {interval(scores[preset.name])}  recall@10 {at_10:.3f}  nDCG@10 {gain:.3f}")
        default_preset = presets.default_preset
        for name, values in scores.items():
            if name != default_preset:
                print(f"{default_preset} minus {name}: {paired_difference(scores[default_preset], values)}")
        taken = []
        for one in queries[:300]:
            response = appliance.search(str(one["query"]), "cosqa", page_size=10)
            taken.append(response.timing.total_us / 1000)
        p50, p95 = np.percentile(taken[50:], [50, 95])
        print(f"{default_preset}, 10 results, warm, n={len(taken) - 50}: p50 {p50:.1f} ms, p95 {p95:.1f} ms at server")


if __name__ == "__main__":
    main()
