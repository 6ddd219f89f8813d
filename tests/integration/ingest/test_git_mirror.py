"""What is fetched of a server again and again does not grow without end."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

from services.ingest.git.jobs import Job
from services.ingest.git.locations import LocationKind
from services.ingest.git.worker import check_out

_FILES = 120  # from a hundred objects on, git keeps what it fetches as a pack
_FETCHES = 24
_IDENTITY = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def test_a_mirror_that_is_fetched_into_often_stays_small(tmp_path: Path) -> None:
    numbers = random.Random(1)
    repository, mirror = tmp_path / "shop", tmp_path / "mirror"

    def git(*arguments: str) -> None:
        environment = {**os.environ, **_IDENTITY, "GIT_CONFIG_GLOBAL": "/dev/null"}
        subprocess.run(["git", "-C", str(repository), *arguments], env=environment, check=True, capture_output=True)

    repository.mkdir()
    git("init", "--quiet", "-b", "main")
    most_packs = 0
    for fetch in range(_FETCHES):
        for number in range(_FILES):
            (repository / f"{number}.txt").write_text(str(numbers.random()) * 100)
        git("add", "--all")
        git("commit", "--quiet", "-m", str(fetch))
        into = tmp_path / f"into-{fetch}" / "shop"
        into.mkdir(parents=True)
        done = check_out(
            Job(
                kind=LocationKind.URL,
                url=f"file://{repository}",
                revision="main",
                known_commit="",
                renew=False,
                mirror=str(mirror),
                into=str(into),
                configuration="",
                max_file_bytes=1 << 20,
                max_document_bytes=1 << 20,
                max_total_bytes=1 << 30,
                max_files=1000,
            )
        )
        assert done.files == _FILES
        assert [path.name for path in into.parent.iterdir()] == ["shop"]
        most_packs = max(most_packs, len(list(mirror.glob("objects/pack/*.pack"))))
    assert 1 < most_packs <= 21
    objects = subprocess.run(
        ["git", "--git-dir", str(mirror), "count-objects", "-v"], check=True, capture_output=True, text=True
    ).stdout
    kept = dict(line.split(": ") for line in objects.splitlines())
    # Of the commits before, what was packed away last is still there; all of them are not.
    assert int(kept["count"]) + int(kept["in-pack"]) < _FETCHES * _FILES / 2
