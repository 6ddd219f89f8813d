from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.errors import InvalidArgument, NotFound, PermissionDenied
from services.ingest.discovery import Body, DiscoverySettings, Found, SizeCaps, discover, read
from services.ingest.exclusions import is_secret_name
from services.ingest.skips import Skipped, SkipReason


def write(root: Path, *paths: str, text: str = "x\n") -> None:
    for path in paths:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def look(
    root: Path, settings: DiscoverySettings | None = None, data_dir: Path | None = None
) -> tuple[list[str], dict[str, str]]:
    items = list(discover(root, settings or DiscoverySettings(), data_dir=data_dir))
    found = [item.path for item in items if isinstance(item, Found)]
    return found, {item.path: str(item.reason) for item in items if isinstance(item, Skipped)}


def test_paths_come_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    write(tmp_path, "a/b.py", "a-b.py", "a.py", "a0/x.py", "B.py", "é.py", "中文/x.md", "a b/c.py")
    found, skipped = look(tmp_path)
    assert found == sorted(found, key=os.fsencode)
    assert len(found) == 8
    assert skipped == {}


def test_size_and_time_are_those_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, "a.py", text="abc")
    os.utime(tmp_path / "a.py", ns=(1, 1_234_567_890_123_456_789))
    assert list(discover(tmp_path, DiscoverySettings())) == [Found("a.py", 3, 1_234_567_890_123_456_789)]


def test_every_entry_is_found_or_skipped_with_a_reason(tmp_path: Path) -> None:
    write(tmp_path, "ok.py", ".env", "deploy/id_rsa", "x.pyc", "node_modules/a/index.js", "pkg/__pycache__/a.pyc")
    write(tmp_path, "env/pyvenv.cfg", "env/lib/a.py", "uv.lock", "app.min.js", "api_pb2.py", "p.egg-info/PKG-INFO")
    write(tmp_path, "target/CACHEDIR.TAG", text="Signature: 8a477f597d28d172789f06886806bc55\n")
    write(tmp_path, "target/a.rs", "lib.so.1.2", ".docker/config.json", ".docker/Dockerfile")
    found, skipped = look(tmp_path)
    assert found == [".docker/Dockerfile", "ok.py"]
    assert skipped == {
        ".docker/config.json": "secret",
        ".env": "secret",
        "api_pb2.py": "generated",
        "app.min.js": "minified",
        "deploy/id_rsa": "secret",
        "env/": "virtual_environment",
        "lib.so.1.2": "binary",
        "node_modules/": "excluded",
        "p.egg-info/": "excluded",
        "pkg/__pycache__/": "excluded",
        "target/": "cache_directory",
        "uv.lock": "generated",
        "x.pyc": "binary",
    }


def test_a_file_that_only_looks_like_a_cache_tag_hides_nothing(tmp_path: Path) -> None:
    write(tmp_path, "target/CACHEDIR.TAG", "target/a.rs")
    assert "target/a.rs" in look(tmp_path)[0]


def test_ignored_entries_are_counted_once_at_the_top(tmp_path: Path) -> None:
    write(tmp_path, "out/a.py", "out/b/c.py", "src/gen.py", "src/keep.py")
    write(tmp_path, ".gitignore", text="out/\n")
    write(tmp_path, "src/.gitignore", text="gen.py\n")
    found, skipped = look(tmp_path)
    assert found == [".gitignore", "src/.gitignore", "src/keep.py"]
    assert skipped == {"out/": "ignored", "src/gen.py": "ignored"}


def test_a_skip_by_rule_names_the_rule(tmp_path: Path) -> None:
    write(tmp_path, "src/gen.py")
    write(tmp_path, "src/.gitignore", text="# generated\ngen.py\n")
    skips = [item for item in discover(tmp_path, DiscoverySettings()) if isinstance(item, Skipped)]
    assert skips == [Skipped("src/gen.py", SkipReason.IGNORED, "src/.gitignore:2")]


def test_the_projects_own_patterns_win_over_ignore_files(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.py")
    write(tmp_path, ".gitignore", text="b.py\n")
    found, skipped = look(tmp_path, DiscoverySettings(ignore=("a.py", "!b.py")))
    assert found == [".gitignore", "b.py"]
    assert skipped == {"a.py": "ignored"}


def test_ignore_files_can_be_disregarded(tmp_path: Path) -> None:
    write(tmp_path, "b.py")
    write(tmp_path, ".gitignore", text="b.py\n")
    assert look(tmp_path, DiscoverySettings(honour_gitignore=False))[0] == [".gitignore", "b.py"]


def test_no_pattern_brings_a_secret_or_an_excluded_folder_back(tmp_path: Path) -> None:
    write(tmp_path, ".env", ".git/config", "node_modules/a.js")
    write(tmp_path, ".gitignore", text="!.env\n!.git/\n!node_modules/\n")
    found, skipped = look(tmp_path, DiscoverySettings(ignore=("!.env", "!.git/")))
    assert found == [".gitignore"]
    assert skipped == {".env": "secret", ".git/": "excluded", "node_modules/": "excluded"}


@pytest.mark.parametrize(
    "name",
    [".env", ".env.production", "ID_RSA", "id_ed25519", "server.pem", "tls.key", ".netrc", ".pypirc", "credentials",
     "credentials.json", "prod.tfvars", "app.keystore", ".git-credentials", "client_secret_1.json", "secrets.yaml"],
)  # fmt: skip
def test_secrets_are_recognised_by_name(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [".env.example", "id_rsa.pub", "credentials.py", "secrets.py", "keys.py", "environment.py", "auth.py", "env.md",
     "id_mapper.py", "config.toml", "test_credentials.py", "key.go", "tokens.py"],
)  # fmt: skip
def test_code_about_secrets_is_code(name: str) -> None:
    assert not is_secret_name(name)


def test_links_are_never_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    outside = tmp_path / "outside"
    write(outside, "passwd")
    write(root, "real/a.py")
    (root / "loop").symlink_to(root)
    (root / "out").symlink_to(outside)
    (root / "out.txt").symlink_to(outside / "passwd")
    (root / "in.py").symlink_to("real/a.py")
    (root / "self").symlink_to("self")
    (root / "gone").symlink_to("nothing")
    (root / "sibling").symlink_to(tmp_path / "root-2")
    write(tmp_path / "root-2", "x")
    found, skipped = look(root)
    assert found == ["real/a.py"]
    assert skipped == {
        "gone": "link_broken",
        "in.py": "link",
        "loop": "link",
        "out": "link_outside",
        "out.txt": "link_outside",
        "self": "link_broken",
        "sibling": "link_outside",
    }


def test_a_root_that_is_itself_a_link_is_walked(tmp_path: Path) -> None:
    write(tmp_path / "real", "a.py")
    (tmp_path / "link").symlink_to("real")
    assert look(tmp_path / "link") == (["a.py"], {})


def test_an_ignore_file_that_is_a_link_does_not_count_and_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "root", "a.py")
    write(tmp_path, "rules", text="a.py\n")
    (tmp_path / "root" / ".gitignore").symlink_to(tmp_path / "rules")
    items = list(discover(tmp_path / "root", DiscoverySettings()))
    reasons = [(item.path, item.reason) for item in items if isinstance(item, Skipped)]
    assert reasons == [(".gitignore", SkipReason.LINK_OUTSIDE), (".gitignore", SkipReason.IGNORE_RULES_UNREADABLE)]
    assert [item.path for item in items if isinstance(item, Found)] == ["a.py"]


def test_sockets_and_pipes_are_skipped_and_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket ends at 107 bytes
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        assert look(tmp_path) == ([], {"pipe": "special", "sock": "special"})
    refused = read(tmp_path, "pipe")
    assert isinstance(refused, Skipped)
    assert refused.reason is SkipReason.SPECIAL


def test_a_name_that_is_no_utf8_is_skipped_in_printable_form(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9.py", os.O_CREAT | os.O_WRONLY))
    assert look(tmp_path) == ([], {"caf\\xe9.py": "name_not_utf8"})


def test_the_size_cap_is_said_not_silent(tmp_path: Path) -> None:
    write(tmp_path, "big.py", text="x" * 101)
    write(tmp_path, "fits.py", text="x" * 100)
    assert look(tmp_path, DiscoverySettings(SizeCaps(100))) == (["fits.py"], {"big.py": "too_large"})


def test_the_products_own_data_is_never_entered(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "state/pg/base/1", "other/b.py")
    assert look(tmp_path, data_dir=tmp_path / "state") == (["a.py", "other/b.py"], {"state/": "data_directory"})
    (tmp_path / "alias").symlink_to("state")
    found, skipped = look(tmp_path, data_dir=tmp_path / "alias")
    assert found == ["a.py", "other/b.py"]
    assert skipped["state/"] == "data_directory"


def test_the_data_directory_is_refused_as_a_source(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        discover(tmp_path, DiscoverySettings(), data_dir=tmp_path)


def test_a_missing_root_and_a_file_as_root_are_refused_at_once(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    with pytest.raises(NotFound):
        discover(tmp_path / "none", DiscoverySettings())
    with pytest.raises(InvalidArgument):
        discover(tmp_path / "a.py", DiscoverySettings())


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_folder_is_skipped_and_an_unreadable_root_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "locked/b.py")
    (tmp_path / "locked").chmod(0)
    try:
        assert look(tmp_path) == (["a.py"], {"locked/": "unreadable"})
        with pytest.raises(PermissionDenied):
            discover(tmp_path / "locked", DiscoverySettings())
    finally:
        (tmp_path / "locked").chmod(0o700)


def test_a_build_directory_of_python_is_skipped_only_beside_its_project(tmp_path: Path) -> None:
    write(tmp_path, "p/pyproject.toml", "p/build/lib/p/a.py", "q/build/lib/b.py", "r/pyproject.toml", "r/build/c.py")
    found, skipped = look(tmp_path)
    assert found == ["p/pyproject.toml", "q/build/lib/b.py", "r/build/c.py", "r/pyproject.toml"]
    assert skipped == {"p/build/": "excluded"}


def test_very_deep_folders_end_in_a_skip(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(250):
        deep = deep / "d"
    deep.mkdir(parents=True)
    found, skipped = look(tmp_path)
    assert found == []
    assert list(skipped.values()) == ["too_deep"]


def test_an_empty_source_is_healthy(tmp_path: Path) -> None:
    assert look(tmp_path) == ([], {})


def test_a_body_comes_with_its_size_and_time(tmp_path: Path) -> None:
    write(tmp_path, "a/b.py", text="hello")
    body = read(tmp_path, "a/b.py")
    assert isinstance(body, Body)
    assert (body.data, body.size_bytes) == (b"hello", 5)
    assert body.mtime_ns == (tmp_path / "a/b.py").stat().st_mtime_ns


def test_reading_refuses_whatever_became_a_link_or_vanished_or_grew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "a/b.py", "big.py", text="x" * 50)
    write(tmp_path, "outside/b.py")
    reasons = []
    (root / "a").rename(root / "was")
    (root / "a").symlink_to(tmp_path / "outside")
    (root / "link.py").symlink_to(tmp_path / "outside/b.py")
    for path in ("a/b.py", "link.py", "none.py", "../outside/b.py", "was"):
        refused = read(root, path)
        assert isinstance(refused, Skipped)
        reasons.append(str(refused.reason))
    too_large = read(root, "big.py", max_bytes=49)
    assert isinstance(too_large, Skipped)
    assert [*reasons, str(too_large.reason)] == ["link", "link", "vanished", "unreadable", "special", "too_large"]


def test_a_body_read_while_the_file_is_rewritten_is_never_torn(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    versions = [bytes([letter]) * 300_000 for letter in b"ab"]
    target.write_bytes(versions[0])
    stop = threading.Event()

    def rewrite() -> None:
        turn = 0
        while not stop.is_set():
            turn ^= 1
            with open(target, "r+b", buffering=0) as file:
                file.write(versions[turn][:150_000])
                file.write(versions[turn][150_000:])

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        seen = [read(tmp_path, "a.txt") for _ in range(20)]
    finally:
        stop.set()
        writer.join()
    # Either whole or reported: a coarse clock of the file system is beyond what a reader can see.
    assert all(isinstance(item, Skipped) or item.size_bytes == len(item.data) == 300_000 for item in seen)


def test_a_scan_of_a_thousand_files_takes_far_less_than_the_limit(tmp_path: Path) -> None:
    for folder in range(40):
        for number in range(25):
            write(tmp_path, f"pkg{folder}/module_{number}.py", text="")
    write(tmp_path, ".gitignore", text="\n".join(["*.log", "build/", "/dist", "*.py[cod]", "docs/**/tmp"] * 10))
    best_s = 1.0
    for _ in range(5):
        started = time.process_time()
        assert len(look(tmp_path)[0]) == 1001
        best_s = min(best_s, time.process_time() - started)
    assert best_s < 0.060


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8), max_size=6))
def test_any_unicode_name_is_found_under_its_own_name(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    root = tmp_path_factory.mktemp("names")
    written = set()
    for name in names:
        if name not in (".", "..") and len(name.encode()) < 200:
            (root / f"f{name}.py").write_text("x")
            written.add(f"f{name}.py")
    assert set(look(root)[0]) == written


def test_ignore_files_count_up_to_a_size_and_those_beyond_are_listed(tmp_path: Path) -> None:
    rules = b"# nothing\n" * 12_000
    for number in range(10):
        (tmp_path / f"f{number}").mkdir()
        (tmp_path / f"f{number}" / ".gitignore").write_bytes(rules + b"a.md\n")
        (tmp_path / f"f{number}" / "a.md").write_text("# A\n")
    listed = list(discover(tmp_path.resolve(), DiscoverySettings()))
    reasons = [one.reason.value for one in listed if isinstance(one, Skipped)]
    # A mebibyte has room for eight of them.
    assert (reasons.count("ignored"), reasons.count("ignore_rules_unreadable")) == (8, 2)
