from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.ingest.discovery import DiscoverySettings, Found, discover
from services.ingest.gitignore import IgnoreRules

GIT = shutil.which("git")
needs_git = pytest.mark.skipif(GIT is None, reason="git is the oracle")


def ignored(patterns: bytes, path: str, *, is_folder: bool = False) -> bool | None:
    verdict = IgnoreRules(patterns).verdict(path.rpartition("/")[2].encode(), path.encode(), is_folder=is_folder)
    return None if verdict is None else verdict[0]


@pytest.mark.parametrize(
    ("patterns", "path", "is_folder", "expected"),
    [
        (b"*.log", "a/b.log", False, True),
        (b"*.log\n!keep.log", "keep.log", False, False),
        (b"!keep.log\n*.log", "keep.log", False, True),
        (b"build/", "build", False, None),
        (b"build/", "x/build", True, True),
        (b"/build", "x/build", True, None),
        (b"doc/*.txt", "doc/a.txt", False, True),
        (b"doc/*.txt", "doc/b/a.txt", False, None),
        (b"**/x/y", "x/y", False, True),
        (b"a/**/b", "a/b", False, True),
        (b"a/**/b", "a/1/2/b", False, True),
        (b"a**/b", "a/b", False, True),
        (b"foo/**", "foo", True, None),
        (b"foo/**", "foo/a", True, True),
        (b"a[!b-d]e", "ace", False, None),
        (b"a[!b-d]e", "aze", False, True),
        (b"[[:digit:]x]", "7", False, True),
        (b"a?c", "a/c", False, None),
        (b"\\#x", "#x", False, True),
        (b"\\!x", "!x", False, True),
        (b"x\\ ", "x ", False, True),
        (b"x ", "x", False, True),
        (b"[unclosed", "[unclosed", False, None),
        (b"trailing\\", "trailing\\", False, None),
        (b"\xef\xbb\xbfbom", "bom", False, True),
        (b"crlf\r\nother", "crlf", False, True),
        (b"# note\n\n", "# note", False, None),
        (b"[z-a]", "m", False, None),
        (b"caf\xc3\xa9", "café", False, True),
    ],
)
def test_rules_mean_what_git_means(patterns: bytes, path: str, is_folder: bool, expected: bool | None) -> None:
    assert ignored(patterns, path, is_folder=is_folder) is expected


def test_a_hostile_pattern_matches_in_time_linear_in_its_stars() -> None:
    started = time.process_time()
    assert ignored(b"*a" * 60 + b"b", "a" * 250) is None
    assert time.process_time() - started < 0.5


_NAMES = st.sampled_from(["a", "b", "ab", "a.py", "b.txt", "build", "x y", "é", "#h", "[z]", "A"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)
_PIECES = st.sampled_from(
    [
        *("a", "b", "ab", "é", "A", "build", "*", "**", "?", "/", "/**", "**/", "*.py", "*.txt", " ", ".", "-"),
        *("[ab]", "[!a]", "[a-c]", "[^b]", "[[:alpha:]]", "[a/b]", "[]", "[]a]", "[[:bad:]]", "[b-]", "[", "]"),
        *("!", "#", "\\a", "\\", "\\/"),
    ]
)
_LINES = st.lists(_PIECES, max_size=6).map("".join)
_PATTERNS = st.lists(_LINES, max_size=5).map("\n".join)


@needs_git
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(paths=st.lists(_PATHS, min_size=1, max_size=8), top=_PATTERNS, nested=_PATTERNS, exclude=_PATTERNS)
def test_discovery_ignores_exactly_what_git_ignores(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], top: str, nested: str, exclude: str
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for path in paths:
        target = root / path
        if any((root / Path(*target.relative_to(root).parts[:depth])).is_file() for depth in range(1, 4)):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_text("x")
    (root / ".git" / "info").mkdir(parents=True)
    (root / ".git" / "objects").mkdir()
    (root / ".git" / "refs").mkdir()
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git" / "info" / "exclude").write_text(exclude)
    (root / ".gitignore").write_text(top)
    if (root / "a").is_dir():
        (root / "a" / ".gitignore").write_text(nested)
    found = {item.path for item in discover(root, DiscoverySettings()) if isinstance(item, Found)}
    listed = subprocess.run(
        [str(GIT), "-c", "core.excludesFile=/dev/null", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=root,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(root)},
        capture_output=True,
        check=True,
    )
    assert found == {name.decode() for name in listed.stdout.split(b"\0") if name}
    shutil.rmtree(root)
