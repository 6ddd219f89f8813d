from __future__ import annotations

import functools
import os
import re
import re._parser  # type: ignore[import-not-found]  # what the typeshed has no stub for
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from services.ingest import gitignore
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


def test_rules_of_a_long_file_are_all_asked() -> None:
    """They are matched some at a time; the first, the last and those between count, of a name and of a path."""
    rules = IgnoreRules(b"".join(b"n%d?\n/p/%d/*\n" % (number, number) for number in range(3000)))
    assert len(rules._names) > 1 < len(rules._paths)
    for number in range(0, 3000, 37):
        assert rules.verdict(b"n%dx" % number, b"d/n%dx" % number, is_folder=False) is not None
        assert rules.verdict(b"x", b"p/%d/x" % number, is_folder=False) is not None
    assert rules.verdict(b"n3000x", b"p/3000/n3000x", is_folder=False) is None


def wildmatch(pattern: bytes, path: bytes) -> bool:
    """Match by trying every way, remembering what failed: the meaning of a pattern with no thought of its speed."""
    tokens = list(gitignore._tokens(pattern))

    @functools.cache
    def fits(token: int, at: int) -> bool:
        if token == len(tokens):
            return at == len(path)
        kind, source = tokens[token]
        if kind in ("star", "rest", "deep") and fits(token + 1, at):
            return True
        if at == len(path):
            return False
        if kind == "star":
            return path[at : at + 1] != b"/" and fits(token, at + 1)
        if kind == "rest":
            return fits(token, at + 1)
        if kind == "deep":
            slash = path.find(b"/", at)
            return slash >= 0 and fits(token, slash + 1)
        return re.fullmatch(source, path[at : at + 1], re.DOTALL) is not None and fits(token + 1, at + 1)

    return fits(0, 0)


class Backtracking:
    """Matches as ``re`` does and counts its steps: the work of an expression, whatever the speed of the machine."""

    def __init__(self, source: bytes, subject: bytes, most_steps: int) -> None:
        self.source, self.subject, self.most_steps = source, subject, most_steps
        self.steps = 0

    def matches(self) -> bool:
        program = re._parser.parse(self.source + rb"\Z", re.DOTALL)  # type: ignore[attr-defined]
        return next(self._all(list(program), 0, 0), None) is not None

    def _all(self, program: Sequence[Any], position: int, at: int) -> Iterator[int]:
        """Yield where the rest of a program can end, in the order in which that is tried."""
        if position == len(program):
            yield at
            return
        for end in self._one(*program[position], at):
            yield from self._all(program, position + 1, end)

    def _one(self, operation: object, argument: Any, at: int) -> Iterator[int]:
        self.steps += 1
        assert self.steps <= self.most_steps, f"{self.source!r} against {self.subject!r}"
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT":
                assert argument[:2] == (0, re._parser.MAXREPEAT)  # type: ignore[attr-defined]
                yield from self._repeated(list(argument[2]), at, lazy=str(operation) == "MIN_REPEAT")
            case "ATOMIC_GROUP":
                yield from list(next(((end,) for end in self._all(list(argument), 0, at)), ()))
            case "ASSERT":
                assert argument[0] == 1
                if next(self._all(list(argument[1]), 0, at), None) is not None:
                    yield at
            case "BRANCH":
                for branch in argument[1]:
                    yield from self._all(list(branch), 0, at)
            case "SUBPATTERN":
                yield from self._all(list(argument[-1]), 0, at)
            case "AT":
                if at == len(self.subject):
                    yield at
            case kind:
                if at < len(self.subject) and _is_one(kind, argument, self.subject[at]):
                    yield at + 1

    def _repeated(self, program: Sequence[Any], at: int, *, lazy: bool) -> Iterator[int]:
        if lazy:
            yield at
        for end in self._all(program, 0, at):
            assert end > at
            yield from self._repeated(program, end, lazy=lazy)
        if not lazy:
            yield at


def _is_one(kind: str, argument: Any, byte: int) -> bool:
    match kind:
        case "ANY":
            return True
        case "LITERAL":
            return bool(byte == argument)
        case "NOT_LITERAL":
            return bool(byte != argument)
        case "RANGE":
            return bool(argument[0] <= byte <= argument[1])
        case "IN":
            negated = str(argument[0][0]) == "NEGATE"
            return negated != any(_is_one(str(one), value, byte) for one, value in argument[negated:])
    raise AssertionError(kind)


_HOSTILE = st.lists(
    st.sampled_from(["**/", "**/", "***/", "x/", "x", "a", "*", "*a", "?", "/", "[ax]", "[!a]", "**", "\\/"]),
    max_size=24,
).map("".join)
_DEEP_PATHS = st.lists(st.sampled_from(["x", "a", "xx", "xaxa", "aaaaaaaab"]), min_size=1, max_size=24).map("/".join)


@settings(max_examples=300, deadline=None)
@example(pattern="**/x/" * 9 + "y", path="/".join("x" * 60))
@example(pattern="**/x/*/" * 5 + "**", path="/".join("a" * 60))
@example(pattern="**/*x*x/" * 4 + "**/y", path="/".join(["xxxxx"] * 20))
@example(pattern="***/" * 12 + "b", path="/".join("x" * 60))
@example(pattern="a**/x/**/x/**/x/b", path="a" + "/x" * 60)
@example(pattern="*a" * 20 + "b", path="a" * 100)
@given(pattern=_HOSTILE, path=_DEEP_PATHS)
def test_no_pattern_takes_more_steps_than_its_length_times_the_path(pattern: str, path: str) -> None:
    source = gitignore._translate(pattern.encode())
    counted = Backtracking(source, path.encode(), 4 * (len(pattern) + 2) * (len(path) + 2))
    assert counted.matches() is wildmatch(pattern.encode(), path.encode())


@settings(max_examples=500, deadline=None)
@given(pattern=_HOSTILE, path=_DEEP_PATHS)
def test_an_expression_means_what_trying_every_way_finds(pattern: str, path: str) -> None:
    compiled = re.compile(gitignore._translate(pattern.encode()) + rb"\Z", re.DOTALL)
    assert (compiled.match(path.encode()) is not None) is wildmatch(pattern.encode(), path.encode())


def test_a_file_of_hostile_rules_is_answered_for_a_deep_path() -> None:
    patterns = "\n".join("**/x/" * folders + "y" for folders in range(2, 40)).encode()
    assert ignored(patterns, "/".join("x" * 60) + "/a.py") is None
    assert ignored(patterns, "/".join("x" * 60) + "/y") is True


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
