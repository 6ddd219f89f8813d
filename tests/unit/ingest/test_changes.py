"""G5 to G7: what is read, and what a file is found to be."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from services.ingest import changes
from services.ingest.changes import Changes, Hint, LiveFile
from services.ingest.discovery import DiscoverySettings

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
