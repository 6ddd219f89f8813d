"""Watching folders: each has its own thread, and what is told apart is told apart by names."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest

from services.ingest.watching import _changes_of, _Indexable, _Seen

# More than a pool of threads has by default.
_FOLDERS = 60


def test_many_folders_are_watched_at_a_time(tmp_path: Path) -> None:
    folders = [tmp_path / f"f{number}" for number in range(_FOLDERS)]

    async def watch() -> list[_Seen | Exception]:
        async with contextlib.AsyncExitStack() as stack:
            queues = []
            for folder in folders:
                folder.mkdir()
                names = [str(folder)]
                queues.append(await stack.enter_async_context(_changes_of(names, _Indexable(tuple(names), ""))))
            for folder in folders:
                (folder / "a.md").write_text("# A\n")
            return await asyncio.wait_for(asyncio.gather(*(queue.get() for queue in queues)), 30)

    assert asyncio.run(watch()) == [_Seen.CHANGED] * _FOLDERS


def test_a_folder_that_is_removed_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()

    async def watch() -> _Seen | Exception:
        async with _changes_of([str(folder)], _Indexable((str(folder),), "")) as changes:
            shutil.rmtree(folder)
            return await asyncio.wait_for(changes.get(), 30)

    assert asyncio.run(watch()) is _Seen.GONE


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("/src/a.md", True),
        ("/src", True),
        ("/src/deep/er/a.py", True),
        ("/src/.gitignore", True),
        ("/src/.git/index", False),
        ("/src/node_modules/x/a.js", False),
        ("/src/.env", False),
        ("/src/a.pyc", False),
        ("/src/.kube/config", False),
        ("/src/data/a.md", False),
        ("/srcs/a.md", False),
        ("/other/a.md", True),
    ],
)
def test_changes_count_by_what_may_be_indexed(path: str, counts: bool) -> None:
    assert _Indexable(("/src", "/other/"), "/src/data")(path) is counts
