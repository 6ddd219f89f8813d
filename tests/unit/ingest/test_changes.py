"""G5 to G7: what is read, and what a file is found to be."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.core.errors import NotFound
from services.ingest import changes
from services.ingest.changes import Changes, Hint, LiveFile
from services.ingest.clocks import is_racy
from services.ingest.discovery import DiscoverySettings
from services.ingest.gitindex import git_blob_id
from tests.support.gitindexes import entry, write_git_index

SETTINGS = DiscoverySettings()
OLD_NS = 1_600_000_000_123_456_789


def write(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    os.utime(target, ns=(OLD_NS, OLD_NS))


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def never(path: str) -> bool:
    return False


def run(
    root: Path,
    live: dict[str, LiveFile],
    hints: dict[str, Hint],
) -> tuple[Changes, list[str]]:
    found = changes.compare(root, SETTINGS, None, live, hints, never)
    candidates = changes.read_candidates(root, SETTINGS, found, live, hints, never)
    return found, [candidate.path for candidate in candidates]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "a.py", "A = 1\n")
    write(tmp_path, "b.md", "# B\n")
    return tmp_path


def known(root: Path) -> tuple[dict[str, LiveFile], dict[str, Hint]]:
    live = {"a.py": LiveFile(digest("A = 1\n"), "a"), "b.md": LiveFile(digest("# B\n"), "")}
    hints = {path: Hint((root / path).stat().st_size, OLD_NS, one.content_hash) for path, one in live.items()}
    return live, hints


def test_new_files_are_candidates(root: Path) -> None:
    found, candidates = run(root, {}, {})
    assert candidates == ["a.py", "b.md"]
    assert found.read == 2


def test_unchanged_files_are_not_read(root: Path) -> None:
    found, candidates = run(root, *known(root))
    assert (candidates, found.read, found.unchanged, found.deleted) == ([], 0, 2, [])


def test_a_touched_file_is_read_and_unchanged_and_its_hint_renewed(root: Path) -> None:
    live, hints = known(root)
    os.utime(root / "a.py", ns=(OLD_NS + 5, OLD_NS + 5))
    found, candidates = run(root, live, hints)
    assert (candidates, found.read, found.unchanged) == ([], 1, 2)
    assert found.hints["a.py"].mtime_ns == OLD_NS + 5


def test_a_deleted_file_is_deleted(root: Path) -> None:
    live, hints = known(root)
    (root / "b.md").unlink()
    found, candidates = run(root, live, hints)
    assert (candidates, found.deleted) == ([], ["b.md"])


def test_a_file_that_is_skipped_from_now_on_is_deleted(root: Path) -> None:
    live, hints = known(root)
    write(root, ".gitignore", "*.md\n")
    found, _ = run(root, live, hints)
    assert found.deleted == ["b.md"]
    assert any(one.path == "b.md" for one in found.skipped)


def test_a_file_skipped_for_its_content_is_not_read_again(root: Path) -> None:
    live, hints = known(root)
    del live["a.py"]
    hints["a.py"] = Hint(hints["a.py"].size_bytes, OLD_NS, digest("A = 1\n"), ("minified", "why"))
    found, candidates = run(root, live, hints)
    assert (candidates, found.read) == ([], 0)
    assert [(one.path, one.reason.value) for one in found.skipped] == [("a.py", "minified")]


def test_a_module_that_gets_another_name_is_extracted_again(root: Path) -> None:
    write(root, "pkg/tool.py", "T = 1\n")
    live, hints = known(root)
    live["pkg/tool.py"] = LiveFile(digest("T = 1\n"), "tool")
    hints["pkg/tool.py"] = Hint(6, OLD_NS, digest("T = 1\n"))
    write(root, "pkg/__init__.py", "")
    _, candidates = run(root, live, hints)
    assert candidates == ["pkg/__init__.py", "pkg/tool.py"]


def test_the_time_of_a_file_just_written_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "fresh.py").write_text("F = 1\n")
    found = changes.compare(tmp_path, SETTINGS, None, {}, {}, never)
    (candidate,) = changes.read_candidates(tmp_path, SETTINGS, found, {}, {}, never)
    hints = {"fresh.py": candidate.hint}
    live = {"fresh.py": LiveFile(candidate.content_hash, "fresh")}
    assert changes.compare(tmp_path, SETTINGS, None, live, hints, never).to_read


def test_edits_since_reading_are_counted(root: Path) -> None:
    _, hints = known(root)
    assert changes.count_edited(root, hints) == 0
    (root / "a.py").write_text("A = 2\n")
    (root / "b.md").unlink()
    assert changes.count_edited(root, hints) == 2


def touched(root: Path) -> tuple[dict[str, LiveFile], dict[str, Hint]]:
    """Give every file another time, and have git look at them again; the hints are those from before."""
    live, hints = known(root)
    hints = {
        path: dataclasses.replace(hint, git_blob=git_blob_id((root / path).read_bytes()))
        for path, hint in hints.items()
    }
    for path in live:
        os.utime(root / path, ns=(OLD_NS + 5, OLD_NS + 5))
    write_git_index(root, [entry(root, path) for path in live])
    return live, hints


def test_the_hint_of_a_file_that_is_read_has_the_id_that_git_gives_its_content(root: Path) -> None:
    found = changes.compare(root, SETTINGS, None, {}, {}, never)
    read = {one.path: one.hint.git_blob for one in changes.read_candidates(root, SETTINGS, found, {}, {}, never)}
    assert read == {"a.py": git_blob_id(b"A = 1\n"), "b.md": git_blob_id(b"# B\n")}


def test_touched_files_that_git_finds_clean_are_not_read_and_their_hints_renewed(root: Path) -> None:
    live, hints = touched(root)
    found, candidates = run(root, live, hints)
    assert (candidates, found.read, found.unchanged, found.vouched) == ([], 0, 2, 2)
    assert found.hints == {path: dataclasses.replace(hint, mtime_ns=OLD_NS + 5) for path, hint in hints.items()}
    again, _ = run(root, live, found.hints)
    assert (again.read, again.unchanged, again.vouched, again.hints) == (0, 2, 0, {})


def test_a_file_whose_time_was_too_young_to_be_kept_is_not_read_again_when_git_finds_it_clean(root: Path) -> None:
    live, hints = touched(root)
    hints = {path: dataclasses.replace(hint, mtime_ns=-1) for path, hint in hints.items()}
    found, _ = run(root, live, hints)
    assert (found.read, found.vouched) == (0, 2)


def test_a_change_that_git_has_taken_over_is_read(root: Path) -> None:
    live, hints = touched(root)
    (root / "a.py").write_text("A = 2\n")
    os.utime(root / "a.py", ns=(OLD_NS + 9, OLD_NS + 9))
    write_git_index(root, [entry(root, path) for path in live])
    found, candidates = run(root, live, hints)
    assert (candidates, found.read, found.vouched) == (["a.py"], 1, 1)


def test_a_change_that_git_has_not_seen_is_read(root: Path) -> None:
    live, hints = touched(root)
    (root / "a.py").write_text("A = 2\n")
    found, candidates = run(root, live, hints)
    assert (candidates, found.read, found.vouched) == (["a.py"], 1, 1)


def test_content_that_git_converts_is_read(root: Path) -> None:
    live, hints = touched(root)
    (root / "b.md").write_bytes(b"# B\r\n")
    os.utime(root / "b.md", ns=(OLD_NS + 5, OLD_NS + 5))
    # With core.autocrlf git keeps the id of the content with LF, and the size of the file.
    write_git_index(root, [entry(root, "a.py"), entry(root, "b.md", blob=git_blob_id(b"# B\n"))])
    found, candidates = run(root, live, hints)
    assert (candidates, found.read, found.vouched) == (["b.md"], 1, 1)


def test_a_vouched_file_that_was_skipped_for_its_content_stays_skipped(root: Path) -> None:
    live, hints = touched(root)
    del live["a.py"]
    hints["a.py"] = dataclasses.replace(hints["a.py"], skip=("minified", "why"))
    found, candidates = run(root, live, hints)
    assert (candidates, found.read, found.vouched) == ([], 0, 2)
    assert ("a.py", "minified") in [(one.path, one.reason.value) for one in found.skipped]
    assert found.hints["a.py"].skip == ("minified", "why")


def test_verify_reads_whatever_git_says(root: Path) -> None:
    live, hints = touched(root)
    found = changes.compare(root, SETTINGS, None, live, hints, lambda path: True)
    assert ([one.path for one in found.to_read], found.vouched) == (["a.py", "b.md"], 0)


def test_hints_of_a_release_that_knew_no_blob_ids_are_read_once(root: Path) -> None:
    live, hints = touched(root)
    hints = {path: dataclasses.replace(hint, git_blob=None) for path, hint in hints.items()}
    found, _ = run(root, live, hints)
    assert (found.read, found.vouched) == (2, 0)
    assert {hint.git_blob for hint in found.hints.values()} == {git_blob_id(b"A = 1\n"), git_blob_id(b"# B\n")}


def test_where_hints_fit_the_index_is_not_opened(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "index").write_bytes(b"damaged")
    live, hints = known(root)
    with capture_logs() as logs:
        run(root, live, hints)
        assert logs == []
        os.utime(root / "a.py", ns=(OLD_NS + 5, OLD_NS + 5))
        hints = {path: dataclasses.replace(hint, git_blob=bytes(20)) for path, hint in hints.items()}
        assert run(root, live, hints)[0].read == 1
    assert [one["event"] for one in logs] == ["git's index is ignored"]


def test_a_folder_that_can_not_be_reached_for_a_moment_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount that answers ESTALE has not lost its files; one that forbids them is a decision of somebody."""
    for path in ("a.py", "sub/b.py", "sub/deep/c.py", "other/d.py"):
        write(tmp_path, path, "X = 1\n")
    live = {path: LiveFile(digest("X = 1\n"), "") for path in ("a.py", "sub/b.py", "sub/deep/c.py", "other/d.py")}
    hints = {path: Hint(6, OLD_NS, digest("X = 1\n")) for path in live}
    scandir = os.scandir

    def failing(error: int) -> None:
        def scan(path: str | os.PathLike[str]) -> object:
            if os.fspath(path).endswith("/sub"):
                raise OSError(error, os.strerror(error))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", scan)

    failing(errno.ESTALE)
    found = changes.compare(tmp_path, SETTINGS, None, live, hints, never)
    assert found.deleted == []
    assert found.kept == {"sub/b.py", "sub/deep/c.py"}
    assert found.unchanged == 4
    failing(errno.EACCES)
    found = changes.compare(tmp_path, SETTINGS, None, live, hints, never)
    assert found.deleted == ["sub/b.py", "sub/deep/c.py"]
    assert not found.kept


def test_edits_after_the_comparison_are_counted_whether_or_not_a_file_was_read(root: Path) -> None:
    live, hints = known(root)
    found, _ = run(root, live, hints)
    assert changes.count_changed(root, SETTINGS, None, found) == 0
    write(root, "new.py", "N = 1\n")
    (root / "b.md").unlink()
    (root / "a.py").write_text("A = 2\n")
    assert changes.count_changed(root, SETTINGS, None, found) == 3


def test_a_time_that_can_not_be_trusted_is_read_by_runs_and_believed_by_observers(root: Path) -> None:
    live, hints = known(root)
    hints["a.py"] = dataclasses.replace(hints["a.py"], mtime_ns=-hints["a.py"].mtime_ns)
    found, candidates = run(root, live, hints)
    assert found.read == 1
    assert candidates == []
    assert found.hints["a.py"].mtime_ns == OLD_NS
    observed = changes.compare(root, SETTINGS, None, live, hints, never, trusting=True)
    assert (observed.unchanged, observed.to_read) == (2, [])


def test_a_time_in_the_future_is_as_good_as_one_in_the_past() -> None:
    now = 1_700_000_000_000_000_001
    assert is_racy(now - 1_000_000, now)
    assert not is_racy(now - 3_000_000_001, now)
    assert not is_racy(now + 3_600_000_000_001, now)


def test_a_found_file_is_not_gone_whatever_is_listed_under_its_name(tmp_path: Path) -> None:
    """A name that is no text is listed in a way that may be the name of another file; ignore rules have a file too."""
    write(tmp_path, "a\\xff.md", "# A\n")
    (tmp_path / os.fsdecode(b"a\xff.md")).write_text("# B\n")
    (tmp_path / ".gitignore").write_bytes(b"# x\n" * 100_000)
    files = ["a\\xff.md", ".gitignore"]
    live = {path: LiveFile(hashlib.sha256((tmp_path / path).read_bytes()).digest(), "") for path in files}
    _, candidates = run(tmp_path, live, {})
    found, _ = run(tmp_path, live, {})
    assert (sorted(candidates), found.deleted) == ([], [])
    assert {(one.path, one.reason.value) for one in found.skipped} == {
        ("a\\xff.md", "name_not_utf8"),
        (".gitignore", "ignore_rules_unreadable"),
    }


def test_another_folder_in_the_place_of_the_compared_one_is_told(root: Path) -> None:
    folder = root / "docs"
    write(folder, "a.md", "# A\n")
    found = changes.compare(folder, SETTINGS, None, {}, {}, never)
    changes.ensure_same(folder, found)
    folder.rename(root / "elsewhere")
    with pytest.raises(NotFound):
        changes.ensure_same(folder, found)
    folder.mkdir()
    with pytest.raises(NotFound):
        changes.ensure_same(folder, found)
    with pytest.raises(NotFound):
        changes.count_changed(folder, SETTINGS, None, found)
