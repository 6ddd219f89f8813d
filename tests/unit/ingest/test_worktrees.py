"""What a checkout lacks of its repository, by its files alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from services.ingest.git.worktree import is_shallow, missing_submodules


def test_submodules_that_are_not_checked_out_are_listed(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.md").write_text("x")
    for name in ("empty", "with space", "quoted"):
        (tmp_path / name).mkdir()
    (tmp_path / ".gitmodules").write_text(
        '[submodule "a"]\n\tpath = empty\n[submodule "b"]\n  path=with space \n[submodule "c"]\n\tPath = "quoted"\n'
        '[submodule "d"]\n\tpath = full\n[submodule "e"]\n\tpath = ../..\n[submodule "f"]\n\tpath =\n'
    )
    assert [one.path for one in missing_submodules(tmp_path)] == ["empty/", "with space/", "quoted/"]


@pytest.mark.parametrize("line", ["path =" + " " * 1_000_000 + '"x"y', '"' * 1_000_000, "path=" + '"' * 1_000_000])
def test_a_hostile_list_is_read_at_once(tmp_path: Path, line: str) -> None:
    (tmp_path / ".gitmodules").write_text(f'[submodule "x"]\n{line}'[: 1 << 20])
    begun = time.process_time()
    assert missing_submodules(tmp_path) == []
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("pointer", ["gitdir: ../repository/worktrees/w", "nothing", "gitdir: \0", ""])
def test_the_history_of_a_linked_worktree_is_that_of_its_repository(tmp_path: Path, pointer: str) -> None:
    linked, repository = tmp_path / "linked", tmp_path / "repository"
    (repository / "worktrees" / "w").mkdir(parents=True)
    (repository / "worktrees" / "w" / "commondir").write_text("../..\n")
    (repository / "shallow").write_text("")
    linked.mkdir()
    (linked / ".git").write_text(f"{pointer}\n")
    assert is_shallow(linked) is pointer.startswith("gitdir: ..")
