"""The embedding cache in admins' hands, on running services: G36 (export, import) and G37 (shrinking)."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from google.protobuf import duration_pb2
from undercroft.client import explain
from undercroft.ingest.v1 import index_service_pb2, project_service_pb2

from services.ingest.cache import Header, ModelVectors, VectorBlock, Writer
from tests.support.appliance import MODEL, Appliance, undercroft

Copy = Callable[..., Path]
QUERIES = ("parse an address", "percent encoding", "hostname", "decode", "which characters are kept", "url_parse")


def embed_calls(appliance: Appliance) -> int:
    """Return how many Embed calls the embed service has answered, as it counts them itself."""
    record = json.loads((appliance.home / "run" / "appliance.json").read_text())
    target = next(one["metrics_target"] for one in record["services"] if one["name"] == "embed")
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as response:
        metrics = response.read().decode()
    counted = re.findall(r'^undercroft_grpc_calls_total\{.*EmbedService/Embed".*\} ([\d.e+]+)$', metrics, re.MULTILINE)
    return round(sum(float(one) for one in counted))


def exported(appliance: Appliance, model: str = "") -> bytes:
    request = index_service_pb2.ExportCacheRequest(model=model)
    return b"".join(part.data for part in appliance.client.index.ExportCache(request, timeout=60))


def take_in(appliance: Appliance, exported: bytes) -> index_service_pb2.ImportCacheResponse:
    def parts() -> Iterator[index_service_pb2.ImportCacheRequest]:
        for start in range(0, len(exported), 1 << 20):
            yield index_service_pb2.ImportCacheRequest(data=exported[start : start + (1 << 20)])

    return appliance.client.index.ImportCache(parts(), timeout=60)


def prune(appliance: Appliance, unused_for_s: int | None) -> index_service_pb2.PruneCacheResponse:
    unused_for = None if unused_for_s is None else duration_pb2.Duration(seconds=unused_for_s)
    return appliance.client.index.PruneCache(index_service_pb2.PruneCacheRequest(unused_for=unused_for), timeout=60)


def delete(appliance: Appliance, project: str) -> None:
    appliance.client.projects.DeleteProject(project_service_pb2.DeleteProjectRequest(name=f"projects/{project}"))


def answers(appliance: Appliance, project: str) -> list[list[tuple[str, float]]]:
    """Return keys and scores of every preset's hits, in order."""
    return [
        [(hit.chunk_key, hit.score) for hit in appliance.search(query, project, preset=preset, page_size=50).hits]
        for query in QUERIES
        for preset in ("dense", "hybrid", "lexical")
    ]


def row_state(appliance: Appliance) -> tuple[int, int]:
    """Return how many vectors there are, and the last id."""
    with appliance.connect_database() as database:
        row = database.execute("SELECT count(*), coalesce(max(id), 0) FROM vectors").fetchone()
    assert row is not None
    return row[0], row[1]


def test_an_imported_cache_spares_every_embed_call_and_gives_the_same_answers(
    appliance: Appliance, copy_package: Copy
) -> None:
    folder = copy_package("mdurl")
    appliance.create_project("carried", [folder])
    first = appliance.index("carried")
    assert first.embeddings.texts > 20
    before = answers(appliance, "carried")
    cache = exported(appliance)
    assert exported(appliance) == cache
    delete(appliance, "carried")
    # As on another appliance: the project and its vectors have never been there.
    with appliance.connect_database() as database:
        database.execute(
            "DELETE FROM vectors v WHERE NOT EXISTS (SELECT FROM contents t WHERE t.fingerprint = v.fingerprint)"
        )
    brought = take_in(appliance, cache)
    assert brought.added >= first.embeddings.cache_misses > 20
    calls = embed_calls(appliance)
    assert calls > 0
    appliance.create_project("carried", [folder])
    again = appliance.index("carried")
    assert embed_calls(appliance) == calls
    assert (again.embeddings.calls, again.embeddings.embedded, again.embeddings.cache_misses) == (0, 0, 0)
    assert again.embeddings.cache_hits == first.embeddings.texts
    assert answers(appliance, "carried") == before
    assert take_in(appliance, cache).added == 0


def test_what_can_not_be_imported_is_refused_with_its_reason_and_changes_nothing(
    appliance: Appliance, tmp_path: Path
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "cart.py").write_text("def add_to_the_cart(item):\n    return [item]\n")
    appliance.create_project("refusals", [folder])
    appliance.index("refusals")
    (model,) = (
        one
        for one in appliance.client.index.GetCacheStatus(index_service_pb2.GetCacheStatusRequest()).models
        if one.dimensions == 384
    )
    cache = exported(appliance)
    flipped, elsewhere = bytearray(cache), bytearray(cache)
    flipped[len(cache) // 2] ^= 1
    elsewhere[16] = 9
    before = row_state(appliance)
    refused = {
        "CACHE_DAMAGED": [b"", b"no export", cache[:-1], cache[: len(cache) // 3], cache + b"\0", flipped, elsewhere],
        "CACHE_INCOMPATIBLE": [
            forged("undercroft-embedding-0", model.digest, model.dimensions),
            forged("undercroft-embedding-1", model.digest, model.dimensions - 8),
        ],
    }
    for reason, files in refused.items():
        for file in files:
            with pytest.raises(grpc.RpcError) as raised:
                take_in(appliance, bytes(file))
            told = explain(raised.value)
            assert (told.code, told.reason) == ("INVALID_ARGUMENT", reason)
            assert told.remedy.startswith("Nothing has changed.")
            assert row_state(appliance) == before
    with pytest.raises(grpc.RpcError) as raised:
        exported(appliance, "0" * 64)
    assert explain(raised.value).reason == "MODEL_NOT_CACHED"


def forged(embedding_format: str, digest: str, dimensions: int) -> bytes:
    """Return a whole export of one vector that nobody has."""
    writer = Writer(Header(embedding_format, "undercroft", (ModelVectors(digest, dimensions, 1),)))
    return writer.head() + writer.block(VectorBlock(0, b"\7" * 32, np.ones((1, dimensions), "<f2"))) + writer.tail()


def swept(appliance: Appliance) -> index_service_pb2.GetCacheStatusResponse:
    """Return the cache's status once the sweep after a run has taken texts away."""
    deadline = time.monotonic() + 30
    while True:
        status = appliance.client.index.GetCacheStatus(index_service_pb2.GetCacheStatusRequest())
        if any(one.unused for one in status.models) or time.monotonic() > deadline:
            return status
        time.sleep(0.1)


def test_the_cache_shrinks_with_the_corpus_and_never_loses_what_is_read(appliance: Appliance, tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("kept", "gone"):
        body = "\n\n".join(f"def {name}_tool_{n}():\n    return '{name} {n}'\n" for n in range(12))
        (folder / f"{name}.py").write_text(body)
    appliance.create_project("shrinking", [folder])
    appliance.index("shrinking")
    prune(appliance, 0)
    whole = row_state(appliance)[0]
    (folder / "gone.py").unlink()
    gone = appliance.index("shrinking").chunks.removed
    assert gone >= 12
    before = answers(appliance, "shrinking")
    # Readers may still be at the generation that has the file.
    assert prune(appliance, 0).removed == 0
    added = 0
    for name in ("one_more", "and_another", "and_a_third"):
        with (folder / "kept.py").open("a") as file:
            file.write(f"\n\ndef {name}():\n    return 1\n")
        # Time passes, and search, which holds three generations, goes on.
        with appliance.connect_database() as database:
            database.execute("UPDATE generations SET superseded_at = superseded_at - interval '1 day'")
            database.execute("DELETE FROM leases")
        report = appliance.index("shrinking")
        assert report.chunks.removed == 0
        added += report.embeddings.embedded
        last = answers(appliance, "shrinking")
    assert added == 3
    status = swept(appliance)
    assert status.retention.seconds == 30 * 86_400
    assert sum(one.unused for one in status.models) == gone
    assert sum(one.vectors for one in status.models) == whole + added
    # They are kept for the retention, in case that they come back.
    assert prune(appliance, None).removed == 0
    assert prune(appliance, 3600).removed == 0
    pruned = prune(appliance, 0)
    assert (pruned.removed, pruned.kept) == (gone, whole + added - gone)
    assert answers(appliance, "shrinking") == last
    # What was there all along is found as before.
    there = {key for hits in before for key, _ in hits}
    for dense_before, dense_last in zip(before[::3], last[::3], strict=True):
        assert [hit for hit in dense_last if hit[0] in there] == dense_before
    appliance.index("shrinking", force=True)
    again = appliance.index("shrinking", verify=True)
    assert (again.embeddings.calls, again.embeddings.cache_misses) == (0, 0)
    with pytest.raises(grpc.RpcError) as raised:
        prune(appliance, -1)
    assert explain(raised.value).code == "INVALID_ARGUMENT"


def test_admins_handle_the_cache_by_the_command_line(appliance: Appliance, tmp_path: Path) -> None:
    folder = tmp_path / "cli"
    folder.mkdir()
    (folder / "tool.py").write_text("def a_tool_for_the_command_line():\n    return 'cli'\n")
    appliance.create_project("by-hand", [folder])
    appliance.index("by-hand")
    file = tmp_path / "cache.undercroft"

    def cache(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return undercroft("cache", *arguments, home=appliance.home, check=check)

    said = cache("export", str(file), "--model", MODEL).stdout
    assert f"exported {file}" in said
    sha256 = subprocess.run(["sha256sum", str(file)], capture_output=True, text=True, check=True).stdout.split()[0]
    assert sha256 in said
    refused = cache("export", str(file), check=False)
    assert refused.returncode == 1
    assert "already" in refused.stderr
    status = json.loads(cache("status", "--json").stdout)
    digest = next(one["digest"] for one in status["models"] if one["dimensions"] == 384)
    cache("export", str(file), "--model", digest[:8], "--force")
    shown = cache("status").stdout
    assert MODEL in shown
    assert digest[:12] in shown
    assert "kept for 30 days" in shown
    imported = cache("import", str(file)).stdout
    assert re.search(r": 0 vectors added, [1-9]\d* there already", imported)
    assert "is not here" not in imported
    foreign = tmp_path / "foreign"
    foreign.write_bytes(forged("undercroft-embedding-1", "e" * 64, 8))
    assert "1 vectors in the cache are of model eeeeeeeeeeee, which is not here" in cache("import", str(foreign)).stdout
    foreign.unlink()
    file.write_bytes(file.read_bytes()[:-3])
    damaged = cache("import", str(file), check=False)
    assert damaged.returncode == 1
    assert "within its trailer" in damaged.stderr
    assert "Nothing has changed." in damaged.stderr
    assert "removed 0 vectors" in cache("prune", "--unused-for", "12h").stdout
    assert re.search(r"removed \d+ vectors, kept [1-9]", cache("prune", "--all").stdout)
    for wrong in (
        ("prune", "--unused-for", "soon"),
        ("import", str(tmp_path / "none")),
        ("export", str(tmp_path / "new"), "--model", "no-such-model"),
    ):
        failed = cache(*wrong, check=False)
        assert failed.returncode == 1
        assert failed.stderr.strip()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache.undercroft", "cli"]


def test_an_export_that_the_disk_can_not_hold_leaves_no_file(appliance: Appliance, tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    (folder / "tool.py").write_text("\n\n".join(f"def tool_{n}():\n    return 'disk {n}'\n" for n in range(20)))
    appliance.create_project("disk", [folder])
    appliance.index("disk")
    out = tmp_path / "out"
    out.mkdir()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from services.cli import main; main()",
            "cache",
            "export",
            str(out / "file"),
            "--home",
            str(appliance.home),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert done.returncode == 1
    assert "can't be written: File too large" in done.stderr
    assert list(out.iterdir()) == []
