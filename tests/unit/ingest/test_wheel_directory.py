from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from services.core.errors import InvalidArgument, NotFound, NotReady
from services.ingest.dependencies.distributions import Fit, parse
from services.ingest.dependencies.manifests import Declared, Dependency
from services.ingest.dependencies.wheels import Resolution, find, resolve

PURE = "py3-none-any.whl"


def touch(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()
    return directory


def wants(**specifiers: str) -> Declared:
    dependencies = [
        Dependency(name, SpecifierSet(specifier), None, ("pyproject.toml",))
        for name, specifier in sorted(specifiers.items())
    ]
    return Declared(tuple(dependencies), (), ())


def chosen(resolution: Resolution) -> dict[str, str]:
    return {resolved.dependency.name: resolved.path.name for resolved in resolution.found}


def reasons(resolution: Resolution) -> dict[str, str]:
    return {missing.dependency.name: missing.reason for missing in resolution.missing}


def test_the_highest_version_that_satisfies_is_chosen(tmp_path: Path) -> None:
    touch(tmp_path, f"a-1.9-{PURE}", f"a-1.10-{PURE}", f"a-2.0-{PURE}", f"b-1.0-{PURE}")
    resolution = resolve(wants(a="<2", b=""), tmp_path)
    assert chosen(resolution) == {"a": f"a-1.10-{PURE}", "b": f"b-1.0-{PURE}"}
    assert resolution.missing == ()
    assert [resolved.version for resolved in resolution.found] == [Version("1.10"), Version("1.0")]
    assert all(resolved.is_wheel and resolved.path.is_absolute() for resolved in resolution.found)


def test_pre_releases_count_where_they_are_asked_for_or_nothing_else_fits(tmp_path: Path) -> None:
    touch(tmp_path, f"a-1.0-{PURE}", f"a-2.0rc1-{PURE}")
    assert chosen(resolve(wants(a=""), tmp_path)) == {"a": f"a-1.0-{PURE}"}
    assert chosen(resolve(wants(a=">=2.0rc1"), tmp_path)) == {"a": f"a-2.0rc1-{PURE}"}
    assert chosen(resolve(wants(a=">1"), tmp_path)) == {"a": f"a-2.0rc1-{PURE}"}
    assert chosen(resolve(wants(a="==2.0rc1"), tmp_path)) == {"a": f"a-2.0rc1-{PURE}"}


def test_of_one_version_pure_wheels_come_first_and_sdists_last(tmp_path: Path) -> None:
    ranked = [
        "a-1.0-2-py2.py3-none-any.whl",
        "a-1.0-1-py3-none-any.whl",
        "a-1.0-py3-none-any.whl",
        "a-1.0-py3-none-manylinux_2_17_x86_64.whl",
        "a-1.0-cp27-cp27m-win32.whl",
        "a-1.0-py3-none-win_amd64.whl",
        "a-1.0.tar.gz",
        "a-1.0.zip",
    ]
    touch(tmp_path, *ranked)
    for name in ranked:
        resolution = resolve(wants(a="==1"), tmp_path)
        assert chosen(resolution) == {"a": name}
        assert resolution.found[0].is_wheel == name.endswith(".whl")
        (tmp_path / name).unlink()


def test_a_later_sdist_wins_over_an_earlier_wheel(tmp_path: Path) -> None:
    touch(tmp_path, f"a-1.0-{PURE}", "a-1.1.tar.gz")
    assert chosen(resolve(wants(a=""), tmp_path)) == {"a": "a-1.1.tar.gz"}


def test_names_are_compared_in_their_canonical_form(tmp_path: Path) -> None:
    touch(tmp_path, f"Zope.Interface-6.0-{PURE}", "my-long_name-1.0.tar.gz")
    declared = Declared(
        tuple(Dependency(name, SpecifierSet(), None, ()) for name in ("my-long-name", "zope-interface")), (), ()
    )
    assert chosen(resolve(declared, tmp_path)) == {
        "my-long-name": "my-long_name-1.0.tar.gz",
        "zope-interface": f"Zope.Interface-6.0-{PURE}",
    }


def test_files_may_lie_one_folder_deep_and_not_deeper(tmp_path: Path) -> None:
    touch(tmp_path, f"a/a-1.0-{PURE}", f"b/deep/b-1.0-{PURE}", f"c/c-1.0-{PURE}", f"c-1.0-{PURE}")
    resolution = resolve(wants(a="", b="", c=""), tmp_path)
    assert [resolved.path.relative_to(tmp_path).as_posix() for resolved in resolution.found] == [
        f"a/a-1.0-{PURE}",
        f"c-1.0-{PURE}",
    ]
    assert find(tmp_path, f"a-1.0-{PURE}") == tmp_path / "a" / f"a-1.0-{PURE}"
    with pytest.raises(NotFound):
        find(tmp_path, f"b-1.0-{PURE}")


def test_what_is_missing_says_what_is_there_instead(tmp_path: Path) -> None:
    touch(tmp_path, f"requests-2.31.0-{PURE}", *[f"many-{number}.0-{PURE}" for number in range(1, 9)])
    declared = wants(requests="==2.32.5", many=">9", nothing="", absent=">=1")
    assert reasons(resolve(declared, tmp_path)) == {
        "absent": "the wheel directory has no file of absent, the project wants >=1",
        "many": "the wheel directory has many 8.0, 7.0, 6.0, 5.0, 4.0 and 3 more, the project wants >9",
        "nothing": "the wheel directory has no file of nothing, the project wants any version",
        "requests": "the wheel directory has requests 2.31.0, the project wants ==2.32.5",
    }


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "a-1.0.tar.bz2", "a-1.0.egg", "a-1.0.whl", "a-one-py3-none-any.whl", "a-1.0.whl.part")
    (tmp_path / f"a-1.0-{PURE}").mkdir()
    os.mkfifo(tmp_path / f"b-1.0-{PURE}")
    assert reasons(resolve(wants(a="", b=""), tmp_path)) == {
        "a": "the wheel directory has no file of a, the project wants any version",
        "b": f"b-1.0-{PURE} is no file of the wheel directory, but a link out of it or something else",
    }
    with pytest.raises(InvalidArgument):
        find(tmp_path, f"b-1.0-{PURE}")


def test_a_link_counts_only_where_it_stays_in_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "wheels"
    touch(directory, f"store/a-1.0-{PURE}", "store/0123abcd")
    touch(tmp_path, f"secret-1.0-{PURE}", f"outside/d-1.0-{PURE}")
    (directory / f"b-1.0-{PURE}").symlink_to(directory / "store" / "0123abcd")
    (directory / f"c-1.0-{PURE}").symlink_to(tmp_path / f"secret-1.0-{PURE}")
    (directory / f"e-1.0-{PURE}").symlink_to("nowhere")
    (directory / f"f-1.0-{PURE}").symlink_to(f"f-1.0-{PURE}")
    (directory / "linked").symlink_to(tmp_path / "outside")
    resolution = resolve(wants(a="", b="", c="", d="", e="", f=""), directory)
    assert chosen(resolution) == {"a": f"a-1.0-{PURE}", "b": f"b-1.0-{PURE}"}
    assert sorted(reasons(resolution)) == ["c", "d", "e", "f"]
    assert find(directory, f"b-1.0-{PURE}") == directory / f"b-1.0-{PURE}"
    for name in "cef":
        with pytest.raises(InvalidArgument, match="link out of it"):
            find(directory, f"{name}-1.0-{PURE}")


def test_a_directory_reached_through_a_link_is_a_directory(tmp_path: Path) -> None:
    touch(tmp_path / "real", f"a-1.0-{PURE}")
    (tmp_path / "mount").symlink_to("real")
    assert find(tmp_path / "mount", f"a-1.0-{PURE}") == tmp_path / "real" / f"a-1.0-{PURE}"


def test_a_lower_file_stands_in_for_a_link_out_of_the_directory(tmp_path: Path) -> None:
    touch(tmp_path / "wheels", f"a-1.0-{PURE}")
    touch(tmp_path, f"a-2.0-{PURE}")
    (tmp_path / "wheels" / f"a-2.0-{PURE}").symlink_to(tmp_path / f"a-2.0-{PURE}")
    assert chosen(resolve(wants(a=""), tmp_path / "wheels")) == {"a": f"a-1.0-{PURE}"}


def test_a_directory_that_is_not_there_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "gone", tmp_path / "file"):
        with pytest.raises(NotReady, match="wheel directory"):
            resolve(wants(a=""), directory)
        with pytest.raises(NotReady, match="wheel directory"):
            find(directory, f"a-1.0-{PURE}")


def test_a_file_that_is_not_there_is_named_with_what_there_is(tmp_path: Path) -> None:
    touch(tmp_path, f"requests-2.31.0-{PURE}")
    with pytest.raises(NotFound, match=r"has no requests-2.32.5.tar.gz, but requests 2.31.0"):
        find(tmp_path, "requests-2.32.5.tar.gz")


@settings(deadline=None)
@given(st.text(alphabet="./\\\0 a-1:%~\n\u202e", max_size=12).flatmap(lambda text: st.sampled_from(
    [text, f"{text}{PURE}", f"{text}/a-1.0-{PURE}", f"a-1.0-{PURE}{text}", f"a-{text}.tar.gz", f"{text}a-1.0.zip"]
)))  # fmt: skip
@example(f"../a-1.0-{PURE}")
@example(f"/etc/a-1.0-{PURE}")
@example(f"sub/../../a-1.0-{PURE}")
@example(f"..\\a-1.0-{PURE}")
@example("..")
@example("")
@example("../x-1.0.zip")
@example(f"a-1.0-{PURE}\0")
def test_no_name_finds_anything_but_a_wheel_or_sdist_of_the_directory(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder).resolve() / "wheels"
        touch(directory, f"a-1.0-{PURE}", "a-1.tar.gz", "sub/a-1.0.zip", "secret.txt")
        touch(directory.parent, f"a-1.0-{PURE}", "x-1.0.zip", "a-1.zip")
        try:
            path = find(directory, name)
        except (InvalidArgument, NotFound):
            assert name not in (f"a-1.0-{PURE}", "a-1.tar.gz", "a-1.0.zip")
        else:
            assert path.name == name
            assert path in (directory / f"a-1.0-{PURE}", directory / "a-1.tar.gz", directory / "sub" / "a-1.0.zip")


FILES = st.builds(
    "a-{}{}".format,
    st.sampled_from(["1.0", "1.1", "1.1.post1", "2.0rc1", "2.0", "2.0+local", "1!0.1", "3.0.dev1"]),
    st.sampled_from(
        [f"-{PURE}", "-cp311-cp311-win_amd64.whl", "-cp39-abi3-manylinux_2_17_x86_64.whl", ".tar.gz", ".zip"]
    ),
)
SPECIFIERS = st.sampled_from(["", ">=1.1", "<2", "==2.0", "~=1.0", "!=2.0", ">=2.0rc1", "<1", "==2.*", "===2.0", ">5"])


@settings(deadline=None)
@given(st.sets(FILES), SPECIFIERS)
def test_the_choice_is_the_first_by_the_stated_order(names: set[str], specifier: str) -> None:
    files = [distribution for name in names if (distribution := parse(name)) is not None]
    assert len(files) == len(names)
    allowed = [one for one in files if SpecifierSet(specifier).contains(one.version, prereleases=True)]
    if not SpecifierSet(specifier).prereleases and any(not one.version.is_prerelease for one in allowed):
        allowed = [one for one in allowed if not one.version.is_prerelease]
    highest = max((one.version for one in allowed), default=None)
    best = min(((one.fit, one.file_name) for one in allowed if one.version == highest), default=None)
    with tempfile.TemporaryDirectory() as folder:
        resolution = resolve(wants(a=specifier), touch(Path(folder), *names))
    assert chosen(resolution) == ({} if best is None else {"a": best[1]})
    assert len(resolution.missing) == (best is None)


@pytest.mark.parametrize(
    ("file_name", "fit"),
    [
        (f"a-1.0-{PURE}", Fit.PURE),
        ("a-1.0-py2.py3-none-any.whl", Fit.PURE),
        ("a-1.0-cp27-cp27m-win32.whl", Fit.FOREIGN),
        ("a-1.0.tar.gz", Fit.SDIST),
        ("a_b-1.0.zip", Fit.SDIST),
        ("a-1.0.tar", None),
        ("-1.0.zip", None),
        ("a b-1.0.zip", None),
        ("é-1.0.tar.gz", None),
        ("a-9" + "9" * 5000 + ".zip", None),
        ("a.whl", None),
        (f"a-1.0-x-{PURE}", None),
    ],
)
def test_only_names_of_wheels_and_sdists_are_parsed(file_name: str, fit: Fit | None) -> None:
    distribution = parse(file_name)
    assert (distribution.fit if distribution is not None else None) == fit


def test_a_folder_that_cannot_be_listed_is_said_and_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, f"a-1.0-{PURE}", f"locked/b-1.0-{PURE}")
    listed = os.scandir

    def refusing(path: Path) -> object:
        if path.name == "locked":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "scandir", refusing)
    resolution = resolve(wants(a="", b=""), tmp_path)
    assert chosen(resolution) == {"a": f"a-1.0-{PURE}"}
    assert list(reasons(resolution)) == ["b"]
    assert resolution.unread == ("locked/ cannot be listed: Permission denied",)


@pytest.mark.parametrize("name", [b"a-2.0-1\xff-py3-none-any.whl", b"\xff/a-2.0.zip"])
def test_a_path_that_is_no_utf8_is_passed_over_and_named(tmp_path: Path, name: bytes) -> None:
    path = os.fsdecode(name)
    touch(tmp_path, path)
    reason = reasons(resolve(wants(a=""), tmp_path))["a"]
    assert reason.endswith("has a path that is not valid UTF-8")
    assert reason.isprintable()
    with pytest.raises(InvalidArgument) as caught:
        find(tmp_path, path.rpartition("/")[2])
    assert caught.value.message.isprintable()
    touch(tmp_path, f"a-1.0-{PURE}")
    assert chosen(resolve(wants(a=""), tmp_path)) == {"a": f"a-1.0-{PURE}"}


def test_a_wheel_of_more_tags_than_any_has_is_none() -> None:
    tags = ".".join(f"t{number}" for number in range(20))
    assert parse(f"a-1.0-{tags}-none-any.whl") is not None
    assert parse(f"a-1.0-{tags}-{tags}-any.whl") is None
    assert parse(f"a-1.0-{tags * 10}-none-any.whl") is None
