"""What an index run does and reports: G5 to G8, G12, G13, G23, G24, G28, G29."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from google.longrunning import operations_pb2
from google.protobuf import field_mask_pb2
from undercroft.client import explain
from undercroft.common.v1 import common_pb2
from undercroft.ingest.v1 import index_run_pb2, index_service_pb2, project_pb2, project_service_pb2
from undercroft.search.v1 import search_service_pb2

from tests.support.appliance import MODEL, Appliance, undercroft
from tests.support.files import write

Copy = Callable[..., Path]


@pytest.fixture
def project(request: pytest.FixtureRequest) -> str:
    return request.node.name.removeprefix("test_").replace("_", "-")[:63].strip("-")


SMALL = {
    "shop/__init__.py": "",
    "shop/cart.py": '"""A cart."""\n\n\ndef add_item(cart, item):\n    """Put an item into the cart."""\n'
    "    cart.append(item)\n\n\ndef total_price(cart):\n    return sum(item.price for item in cart)\n",
    "README.md": "# Shop\n\nSells things.\n\n## Returns\n\nThirty days.\n",
}


def test_no_change_reads_no_body_embeds_nothing_and_publishes_nothing(
    appliance: Appliance, copy_package: Copy, project: str
) -> None:
    appliance.create_project(project, [copy_package("markdown_it")])
    first = appliance.index(project)
    assert first.published
    assert first.files.new > 10
    # A file written just now is read once more, since its time may not tell of a second change.
    appliance.index(project)
    again = appliance.index(project)
    assert not again.published
    assert again.generation == first.generation
    assert again.files.read == 0
    assert again.files.unchanged == first.files.new
    assert again.embeddings.calls == 0
    assert again.chunks.kept == first.chunks.added


def test_files_are_classified_exactly(appliance: Appliance, tmp_path: Path, project: str) -> None:
    folder = write(tmp_path / "shop", SMALL)
    appliance.create_project(project, [folder])
    first = appliance.index(project)
    assert (first.files.new, first.files.changed, first.files.deleted) == (3, 0, 0)
    write(
        folder, {"shop/cart.py": SMALL["shop/cart.py"].replace("sum(", "0 + sum("), "shop/pay.py": "def pay(): ...\n"}
    )
    (folder / "README.md").unlink()
    second = appliance.index(project)
    assert (second.files.new, second.files.changed, second.files.unchanged, second.files.deleted) == (1, 1, 1, 1)
    paths = {chunk.place.path for chunk in appliance.export(project)}
    assert paths == {"shop/cart.py", "shop/pay.py"}


def test_one_changed_function_costs_one_embedding_and_keeps_its_key(
    appliance: Appliance, tmp_path: Path, project: str
) -> None:
    folder = write(tmp_path / "shop", SMALL)
    appliance.create_project(project, [folder])
    appliance.index(project)
    before = {chunk.chunk_key: chunk.text for chunk in appliance.export(project)}
    write(folder, {"shop/cart.py": SMALL["shop/cart.py"].replace("sum(", "round(sum(").replace("cart)\n", "cart))\n")})
    report = appliance.index(project)
    after = {chunk.chunk_key: chunk.text for chunk in appliance.export(project)}
    assert report.embeddings.embedded == 1
    assert report.embeddings.calls == 1
    assert (report.chunks.added, report.chunks.removed) == (1, 1)
    assert before.keys() == after.keys()
    assert sum(before[key] != after[key] for key in before) == 1


def test_a_line_inserted_above_moves_chunks_and_embeds_none_of_them(
    appliance: Appliance, tmp_path: Path, project: str
) -> None:
    folder = write(tmp_path / "shop", SMALL)
    appliance.create_project(project, [folder])
    appliance.index(project)
    write(folder, {"shop/cart.py": SMALL["shop/cart.py"].replace("\n\n\ndef add_item", "\n\n\n\n\ndef add_item")})
    report = appliance.index(project)
    assert report.published
    assert report.embeddings.embedded == 0
    assert report.chunks.moved == 2
    assert (report.chunks.added, report.chunks.removed) == (0, 0)


def test_touching_every_file_changes_nothing(appliance: Appliance, tmp_path: Path, project: str) -> None:
    folder = write(tmp_path / "shop", SMALL)
    appliance.create_project(project, [folder])
    first = appliance.index(project)
    for path in folder.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    report = appliance.index(project)
    assert not report.published
    assert report.generation == first.generation
    assert report.files.unchanged == 3
    assert report.embeddings.calls == 0


def test_verify_finds_a_same_size_edit_with_its_old_time(appliance: Appliance, tmp_path: Path, project: str) -> None:
    folder = write(tmp_path / "shop", SMALL)
    target = folder / "README.md"
    os.utime(target, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    appliance.create_project(project, [folder])
    appliance.index(project)
    before = target.stat()
    target.write_text(SMALL["README.md"].replace("Thirty", "Ninety"))
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not appliance.index(project).published
    report = appliance.index(project, verify=True)
    assert report.files.changed == 1
    assert any("Ninety days" in chunk.text for chunk in appliance.export(project))


def test_equal_text_is_embedded_once_whoever_owns_it(appliance: Appliance, tmp_path: Path, project: str) -> None:
    write(tmp_path / "a" / "shop", {"lib/tool.py": "def unusual_helper_of_one_kind():\n    return 4711\n"})
    write(tmp_path / "b" / "shop", {"lib/tool.py": "def unusual_helper_of_one_kind():\n    return 4711\n"})
    appliance.create_project(f"{project[:50]}-a", [tmp_path / "a" / "shop"])
    appliance.create_project(f"{project[:50]}-b", [tmp_path / "b" / "shop"])
    assert appliance.index(f"{project[:50]}-a").embeddings.embedded == 1
    other = appliance.index(f"{project[:50]}-b").embeddings
    assert (other.embedded, other.cache_hits) == (0, 1)


def test_a_bad_file_is_listed_with_its_reason_and_stops_nothing(
    appliance: Appliance, tmp_path: Path, project: str
) -> None:
    folder = write(tmp_path / "shop", {**SMALL, ".gitignore": "*.log\n", "debug.log": "x", ".env": "KEY=secret"})
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "latin.py").write_bytes("# -*- coding: latin-1 -*-\nNAME = 'Zürich'\n".encode("latin-1"))
    (folder / "huge.txt").write_text("x " * 2_000_000)
    os.symlink("/etc/passwd", folder / "passwd.txt")
    appliance.create_project(project, [folder])
    report = appliance.index(project)
    assert report.published
    response = appliance.client.index.ListSkippedFiles(
        index_service_pb2.ListSkippedFilesRequest(parent=f"projects/{project}")
    )
    skipped = {one.path: one.reason for one in response.skipped_files}
    assert skipped == {
        ".env": "secret",
        "debug.log": "ignored",
        "huge.txt": "too_large",
        "passwd.txt": "link_outside",
        "picture.png": "binary",
    }
    assert report.files.skipped == response.total_size == 5
    texts = "\n".join(chunk.text for chunk in appliance.export(project))
    assert "Zürich" in texts
    assert "def f(:" in texts
    assert "secret" not in texts


def test_a_run_reports_what_it_did(appliance: Appliance, tmp_path: Path, project: str) -> None:
    appliance.create_project(project, [write(tmp_path / "shop", SMALL)])
    report = appliance.index(project)
    assert report.project == f"projects/{project}"
    assert (report.files.new, report.files.skipped) == (3, 0)
    assert report.chunks.added == len(appliance.export(project)) == 5
    embeddings = report.embeddings
    assert embeddings.model == "all-minilm-l6-v2"
    assert embeddings.texts == embeddings.cache_hits + embeddings.cache_misses
    assert embeddings.embedded == embeddings.cache_misses
    assert report.generation == 1
    assert report.end_time.ToNanoseconds() >= report.start_time.ToNanoseconds() >= report.create_time.ToNanoseconds()


def test_counts_of_the_status_are_those_of_the_rows(appliance: Appliance, tmp_path: Path, project: str) -> None:
    appliance.create_project(project, [write(tmp_path / "shop", SMALL)])
    appliance.index(project)
    status = appliance.client.projects.GetProjectStatus(
        project_service_pb2.GetProjectStatusRequest(name=f"projects/{project}")
    )
    states = {one.method: (common_pb2.MethodState.Name(one.state), one.count) for one in status.methods}
    assert status.files == 3
    assert status.chunks == 5
    assert states["lexical"] == ("METHOD_STATE_READY", 5)
    assert states["dense"] == ("METHOD_STATE_READY", 5)
    assert states["decisions"] == ("METHOD_STATE_READY", 0)


def test_an_empty_corpus_is_healthy_and_empty(appliance: Appliance, tmp_path: Path, project: str) -> None:
    (tmp_path / "empty").mkdir()
    appliance.create_project(project, [tmp_path / "empty"])
    report = appliance.index(project)
    assert report.published
    response = appliance.search("anything", project)
    assert not response.hits
    assert response.hints


def test_the_data_directory_inside_a_root_is_never_indexed(appliance: Appliance, tmp_path: Path, project: str) -> None:
    outer = appliance.home.parent
    marker = outer / "note.md"
    marker.write_text("# Beside the data directory\n")
    appliance.create_project(project, [outer])
    appliance.index(project)
    assert {chunk.place.path for chunk in appliance.export(project)} == {"note.md"}
    with pytest.raises(grpc.RpcError) as refused:
        appliance.add_source(project, appliance.home / "logs")
    assert explain(refused.value).code == "INVALID_ARGUMENT"


def test_every_hit_opens_exactly_its_lines(appliance: Appliance, copy_package: Copy, project: str) -> None:
    folder = copy_package("markdown_it")
    appliance.create_project(project, [folder])
    appliance.index(project)
    for chunk in appliance.export(project):
        place = chunk.place
        request = search_service_pb2.ReadFileRequest(project=f"projects/{project}", path=place.path, span=place.span)
        read = appliance.client.search.ReadFile(request)
        assert read.text.removesuffix("\n") == chunk.text
        lines = (folder / place.path).read_text().splitlines()
        assert "\n".join(lines[place.span.start_line - 1 : place.span.end_line]) == chunk.text


def test_a_file_edited_during_a_run_leaves_the_project_stale(
    appliance: Appliance, copy_package: Copy, project: str
) -> None:
    folder = copy_package("sqlalchemy") / "orm"
    appliance.create_project(project, [folder], model="")
    operation = appliance.start_index(project)
    for update in appliance.client.index.WatchIndexRun(index_service_pb2.WatchIndexRunRequest(operation=operation)):
        if update.report.files.new:
            break
    first = sorted(folder.rglob("*.py"))[0]
    first.write_text(first.read_text() + "\n# edited while the run went on\n")
    appliance.wait(operation)
    assert appliance.search("session", project).snapshots[0].stale
    assert appliance.index(project).files.changed == 1
    assert not appliance.search("session", project).snapshots[0].stale


def test_a_run_can_be_cancelled_and_leaves_the_live_generation(
    appliance: Appliance, copy_package: Copy, project: str
) -> None:
    folder = copy_package("markdown_it")
    appliance.create_project(project, [folder])
    operation = appliance.start_index(project)
    appliance.client.operations.CancelOperation(operations_pb2.CancelOperationRequest(name=operation))
    ended = appliance.client.operations.WaitOperation(operations_pb2.WaitOperationRequest(name=operation), timeout=120)
    assert ended.done
    assert ended.error.code == grpc.StatusCode.CANCELLED.value[0]
    assert appliance.search("token", project).snapshots[0].generation == 0
    assert appliance.index(project).published


def test_a_run_can_be_cancelled_while_its_files_are_slow(appliance: Appliance, tmp_path: Path, project: str) -> None:
    """All of them are one batch; what of it is under way is not waited for."""
    slow = "[a](b) `c.d` *e*\n> - text\n\n" * 60_000
    folder = write(tmp_path / "docs", {f"{number}.md": f"{number}\n\n{slow}" for number in range(16)})
    appliance.create_project(project, [folder], model="")
    operation = appliance.start_index(project)
    for update in appliance.client.index.WatchIndexRun(index_service_pb2.WatchIndexRunRequest(operation=operation)):
        if update.report.stage == index_run_pb2.INDEX_STAGE_EXTRACT:
            break
    time.sleep(2)
    begun = time.monotonic()
    appliance.client.operations.CancelOperation(operations_pb2.CancelOperationRequest(name=operation))
    ended = appliance.client.operations.WaitOperation(operations_pb2.WaitOperationRequest(name=operation), timeout=60)
    assert ended.error.code == grpc.StatusCode.CANCELLED.value[0]
    assert time.monotonic() - begun < 15


def test_a_folder_that_vanishes_during_a_run_leaves_the_project_as_it_was(
    appliance: Appliance, copy_package: Copy, project: str
) -> None:
    folder = copy_package("sqlalchemy")
    appliance.create_project(project, [folder], model="")
    operation = appliance.start_index(project)
    for update in appliance.client.index.WatchIndexRun(index_service_pb2.WatchIndexRunRequest(operation=operation)):
        if update.report.files.new:
            break
    folder.rename(folder.parent / "elsewhere")
    ended = appliance.client.operations.WaitOperation(operations_pb2.WaitOperationRequest(name=operation), timeout=120)
    assert ended.error.code == grpc.StatusCode.NOT_FOUND.value[0]
    assert appliance.status(project).snapshot.generation == 0
    (folder.parent / "elsewhere").rename(folder)
    assert appliance.index(project).files.new > 100


def test_deleted_sources_leave_the_project(appliance: Appliance, tmp_path: Path, project: str) -> None:
    appliance.create_project(
        project, [write(tmp_path / "shop", SMALL), write(tmp_path / "bank", {"bank.py": "def pay(): ...\n"})]
    )
    appliance.index(project)
    appliance.client.projects.DeleteSource(
        project_service_pb2.DeleteSourceRequest(name=f"projects/{project}/sources/shop")
    )
    report = appliance.index(project)
    assert report.files.deleted == 3
    assert {chunk.place.package for chunk in appliance.export(project)} == {"bank"}


def test_one_function_is_searchable_right_after_its_run(appliance: Appliance, tmp_path: Path, project: str) -> None:
    folder = write(tmp_path / "shop", SMALL)
    appliance.create_project(project, [folder])
    appliance.index(project)
    for number in range(5):
        write(folder, {"shop/fresh.py": f"def zanzibar_{number}():\n    return {number}\n"})
        start = time.monotonic()
        generation = appliance.index(project).generation
        response = appliance.search(f"zanzibar_{number}", project, preset="lexical")
        assert response.hits[0].qualified_name == f"shop.fresh.zanzibar_{number}"
        assert response.snapshots[0].generation == generation
        assert time.monotonic() - start < 30


def test_a_missing_model_degrades_dense_retrieval_alone_and_the_next_run_fills_it_in(
    appliance: Appliance, tmp_path: Path, project: str
) -> None:
    vanishing = appliance.home / "models" / "vanishing"
    shutil.copytree(appliance.home / "models" / MODEL, vanishing)
    appliance.create_project(project, [write(tmp_path / "shop", SMALL)], model="vanishing")
    shutil.rmtree(vanishing)
    degraded = appliance.index(project)
    assert degraded.published
    assert [one.method for one in degraded.degraded] == ["dense"]
    assert degraded.degraded[0].remedy
    response = appliance.search("total price of a cart", project)
    assert response.hits
    assert any(leg.leg == "dense" and leg.reason for leg in response.legs)
    appliance.client.projects.UpdateProject(
        project_service_pb2.UpdateProjectRequest(
            project=project_pb2.Project(name=f"projects/{project}", embedding_model=MODEL),
            update_mask=field_mask_pb2.FieldMask(paths=["embedding_model"]),
        )
    )
    filled = appliance.index(project)
    assert filled.files.changed == 0
    assert filled.renewal_reason
    assert not filled.degraded
    assert appliance.search("total price of a cart", project, preset="dense").hits


def test_a_new_project_with_a_model_that_is_not_there_is_refused_at_once(
    appliance: Appliance, tmp_path: Path, project: str
) -> None:
    folder = write(tmp_path / "shop", SMALL)
    refused = undercroft(
        "index", str(folder), "-p", project, "--model", "no-such-model", home=appliance.home, check=False
    )
    assert refused.returncode == 1
    assert "no-such-model" in refused.stderr
    with pytest.raises(grpc.RpcError) as missing:
        appliance.status(project)
    assert explain(missing.value).code == "NOT_FOUND"


def test_two_folders_of_one_name_are_not_taken_for_one_project(appliance: Appliance, tmp_path: Path) -> None:
    first = write(tmp_path / "a" / "twin", SMALL)
    second = write(tmp_path / "b" / "twin", SMALL)
    assert undercroft("index", str(first), "--model", "", home=appliance.home).returncode == 0
    refused = undercroft("index", str(second), home=appliance.home, check=False)
    assert refused.returncode == 1
    assert "--project" in refused.stderr
    joined = undercroft("index", str(second), "--project", "twin", home=appliance.home)
    assert "3 new" in joined.stdout
    again = undercroft("index", str(first), home=appliance.home)
    assert "nothing changed" in again.stdout


def test_names_too_long_for_a_database_cost_nothing_but_their_beauty(
    appliance: Appliance, tmp_path: Path, project: str
) -> None:
    heading = "".join(f"{n:x}" for n in range(1500))
    folder = write(
        tmp_path / "long",
        {
            "heading.md": f"# {heading}\n\nA text under a long heading.\n",
            "setext.md": "word " * 1600 + "\n---\n\nA text under a paragraph that is a heading.\n",
            "token.md": f"# Short\n\nA token `<{heading}>` in backticks.\n",
            "names.py": f"class {'C' * 3000}:\n    def {'f' * 3000}(self):\n        import {'.'.join(['a'] * 3000)}\n",
            "fine.py": "def fine():\n    return 1\n",
        },
    )
    deep = folder / Path(*["d" * 200] * 6)
    deep.mkdir(parents=True)
    (deep / "deep.py").write_text("def deep():\n    return 1\n")
    appliance.create_project(project, [folder], model="")
    report = appliance.index(project)
    assert report.published
    assert report.attempts == 1
    assert {chunk.place.path for chunk in appliance.export(project)} == {
        "heading.md",
        "setext.md",
        "token.md",
        "names.py",
        "fine.py",
    }
    skipped = appliance.client.index.ListSkippedFiles(
        index_service_pb2.ListSkippedFilesRequest(parent=f"projects/{project}")
    ).skipped_files
    assert [one.reason for one in skipped] == ["name_too_long"]
    assert not appliance.index(project).published


def test_a_source_that_cannot_be_listed_keeps_its_files_and_does_not_stop_the_others(
    appliance: Appliance, tmp_path: Path, project: str
) -> None:
    gone, other = write(tmp_path / "gone", SMALL), write(tmp_path / "other", {"tool.py": "def tool(): ...\n"})
    appliance.create_project(project, [gone, other], model="")
    appliance.index(project)
    before = {chunk.chunk_key for chunk in appliance.export(project)}
    gone.rename(tmp_path / "elsewhere")
    write(other, {"more.py": "def more(): ...\n"})
    report = appliance.index(project)
    assert (report.files.new, report.files.deleted) == (1, 0)
    assert before < {chunk.chunk_key for chunk in appliance.export(project)}
    assert "remove-source" in report.warnings[0]
    snapshot = appliance.search("tool", project).snapshots[0]
    assert snapshot.stale
    assert "gone" in snapshot.stale_reason
    request = index_service_pb2.ObserveProjectRequest(project=f"projects/{project}")
    assert "remove-source" in appliance.client.index.ObserveProject(request).snapshot.stale_reason
    os.symlink("/etc", gone)
    appliance.index(project)
    assert not any(chunk.place.path == "passwd" for chunk in appliance.export(project))


def test_what_makes_a_project_stale_is_seen(appliance: Appliance, tmp_path: Path, project: str) -> None:
    folder = write(tmp_path / "shop", SMALL)
    appliance.create_project(project, [folder, write(tmp_path / "bank", {"b.py": "B = 1\n"})], model="")
    appliance.index(project)

    def stale() -> str:
        request = index_service_pb2.ObserveProjectRequest(project=f"projects/{project}")
        snapshot = appliance.client.index.ObserveProject(request).snapshot
        assert snapshot.stale is bool(snapshot.stale_reason)
        return snapshot.stale_reason

    assert stale() == ""
    write(folder, {"new.py": "N = 1\n"})
    assert "1 new" in stale()
    appliance.index(project)
    appliance.client.projects.DeleteSource(
        project_service_pb2.DeleteSourceRequest(name=f"projects/{project}/sources/bank")
    )
    assert "1 deleted" in stale()
    appliance.index(project)
    assert stale() == ""
    appliance.client.projects.UpdateProject(
        project_service_pb2.UpdateProjectRequest(
            project=project_pb2.Project(name=f"projects/{project}", embedding_model=MODEL),
            update_mask=field_mask_pb2.FieldMask(paths=["embedding_model"]),
        )
    )
    assert "model" in stale()
    with pytest.raises(grpc.RpcError) as refused:
        appliance.search("shop", project, freshness=common_pb2.FRESHNESS_REQUIRE_FRESH)
    assert explain(refused.value).reason == "STALE"
    waited = appliance.search("shop", project, freshness=common_pb2.FRESHNESS_WAIT)
    assert not waited.snapshots[0].stale


@pytest.mark.parametrize("package", ["a:b", "..", "a\nb", "x" * 1000, ""])
def test_packages_that_would_make_keys_collide_are_refused(appliance: Appliance, tmp_path: Path, package: str) -> None:
    name = f"package-{abs(hash(package)) % 10**6}"
    appliance.create_project(name, [], model="")
    source = project_pb2.Source(package=package, folder=project_pb2.FolderOrigin(path=str(tmp_path)))
    request = project_service_pb2.CreateSourceRequest(parent=f"projects/{name}", source_id="s", source=source)
    if not package:
        assert appliance.client.projects.CreateSource(request).package == "s"
        return
    with pytest.raises(grpc.RpcError) as refused:
        appliance.client.projects.CreateSource(request)
    assert explain(refused.value).reason == "INVALID_PACKAGE"


def test_the_planner_knows_of_a_large_change_when_it_is_published(
    appliance: Appliance, tmp_path: Path, project: str
) -> None:
    def known() -> tuple[float, object]:
        with appliance.connect_database() as connection:
            row = connection.execute(
                "SELECT c.reltuples, s.last_analyze FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid"
                " WHERE c.oid = 'chunks'::regclass"
            ).fetchone()
        assert row is not None
        return row

    before, _ = known()
    sections = 40 + round(max(before, 0) / 10)
    text = "".join(f"# Section {number}\n\nText of section {number}.\n\n" for number in range(sections))
    appliance.create_project(project, [write(tmp_path / "docs", {"long.md": text})], model="")
    appliance.index(project)
    after, analyzed_at = known()
    assert after >= before + sections
    write(tmp_path / "docs", {"long.md": text.replace("section 7.", "section seven.")})
    appliance.index(project)
    assert known()[1] == analyzed_at


def test_what_a_reader_should_know_of_a_file_is_listed(appliance: Appliance, tmp_path: Path, project: str) -> None:
    folder = write(tmp_path / "legacy", {"fine.md": "# Fine\n"})
    (folder / "old.txt").write_bytes("Größenänderung überall möglich, außer nachts.\n".encode("latin-1") * 20)
    (folder / "nul.txt").write_bytes(b"one\0two\n" * 1 + b"plain text follows here\n" * 200)
    appliance.create_project(project, [folder], model="")
    appliance.index(project)

    def notes() -> dict[str, set[str]]:
        request = index_service_pb2.ListFileNotesRequest(parent=f"projects/{project}", page_size=1)
        found: dict[str, set[str]] = {}
        while True:
            page = appliance.client.index.ListFileNotes(request)
            for note in page.notes:
                found.setdefault(note.path, set()).add(note.code)
            if not page.next_page_token:
                assert sum(page.counts.values()) == sum(map(len, found.values()))
                return found
            request.page_token = page.next_page_token

    assert notes() == {"old.txt": {"encoding_guessed"}, "nul.txt": {"nul_replaced"}}
    assert "Größenänderung" in appliance.search("Größenänderung", project).hits[0].text
    listed = undercroft("projects", "notes", project, home=appliance.home).stdout
    assert "encoding_guessed" in listed
    (folder / "old.txt").write_text("Now UTF-8: Größe.\n")
    assert appliance.index(project).published
    assert notes() == {"nul.txt": {"nul_replaced"}}
