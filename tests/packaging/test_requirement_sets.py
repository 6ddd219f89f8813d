"""The requirement sets agree with pyproject.toml and with each other, and say exactly which files they mean."""

from __future__ import annotations

import itertools
import re
import shutil
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.tags import compatible_tags, cpython_tags, parse_tag

from ops.wheels.locks import Locks, Pin, format_lock, parse_lock
from ops.wheels.platforms import IMAGE_PYTHON, PLATFORMS, Platform, WheelName
from services.core.errors import InvalidArgument

ROOT = Path(__file__).parents[2]
LOCKS = Locks.open(ROOT)
IMAGE_SETS = [(found.name, platform) for found in LOCKS.images() for platform in PLATFORMS.values()]


def _pins(name: str, platform: Platform) -> list[Pin]:
    path = LOCKS.path(name, platform)
    return parse_lock(path.read_text("utf-8"), path.name)


def test_the_sets_agree_with_pyproject() -> None:
    assert LOCKS.disagreements() == []


@pytest.mark.parametrize(("name", "platform"), IMAGE_SETS)
def test_a_set_of_an_image_names_one_wheel_for_each_requirement(name: str, platform: Platform) -> None:
    pins = _pins(name, platform)
    assert len({pin.project for pin in pins}) == len(pins) > 0
    for pin in pins:
        wheel = WheelName.parse(pin.file)
        assert (wheel.project, wheel.version) == (pin.project, pin.version)
        assert len(pin.hashes) == 1
        assert platform.fits(wheel, IMAGE_PYTHON)


def test_torch_is_in_no_set_but_its_own_where_it_is_a_build_for_processors() -> None:
    for path in LOCKS.folder.rglob("*.txt"):
        projects = {pin.project: pin.version for pin in parse_lock(path.read_text("utf-8"), path.name)}
        assert not {name for name in projects if name.startswith(("nvidia-", "cuda-", "triton", "torchvision"))}
        assert ("torch" in projects) == (path.name == "torch.txt")
        assert projects.get("torch", "+cpu").endswith("+cpu")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "offline-wheels", tmp_path / "offline-wheels")
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"numpy==2.4.6"', '"numpy==2.4.7"', "has numpy 2.4.6, pyproject.toml 2.4.7"),
        ('"tantivy==0.27.0",', '"tantivy==0.27.0", "added==1.0",', "has added not, pyproject.toml 1.0"),
        ('"psutil==7.2.2",', "", "all.txt was compiled from other requirements"),
    ],
)
def test_a_change_of_pyproject_alone_is_found(checkout: Path, old: str, new: str, told: str) -> None:
    path = checkout / "pyproject.toml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    found = Locks.open(checkout).disagreements()
    assert any(told in line and line.endswith("Run `make lock` where an index is.") for line in found), found


def test_a_set_of_another_version_than_the_others_is_found(checkout: Path) -> None:
    path = Locks.open(checkout).path("search", PLATFORMS["linux-aarch64"])
    path.write_text(path.read_text("utf-8").replace("idna==", "idna==1."), "utf-8")
    path.write_text(path.read_text("utf-8").replace("sqlalchemy==", "sqlalchemy==1."), "utf-8")
    assert any("linux-aarch64/search.txt has sqlalchemy 1." in line for line in Locks.open(checkout).disagreements())


def _other_hash(locks: Locks) -> Path:
    path = locks.path("search", PLATFORMS["linux-x86_64"])
    path.write_text(re.sub("sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", path.read_text("utf-8"), count=1), "utf-8")
    return path


def _without_a_hash(locks: Locks) -> Path:
    path = locks.path("all")
    path.write_text(re.sub(r"    --hash=\S+ \\\n", "", path.read_text("utf-8"), count=1), "utf-8")
    return path


def _without_a_transitive_requirement(locks: Locks) -> Path:
    path = locks.path("search", PLATFORMS["linux-x86_64"])
    pins = [pin for pin in parse_lock(path.read_text("utf-8"), path.name) if pin.project != "mako"]
    path.write_text(path.read_text("utf-8").splitlines(keepends=True)[0] + format_lock(pins), "utf-8")
    return path


def _with_a_stranger(locks: Locks) -> Path:
    path = locks.path("embed", PLATFORMS["linux-aarch64"])
    with path.open("a") as file:
        file.write(f"evil==1.0 --hash=sha256:{'0' * 64}\n")
    return path


def _without_torch(locks: Locks) -> Path:
    path = locks.path("torch", PLATFORMS["linux-x86_64"])
    path.unlink()
    return path


def _other_torch(locks: Locks) -> Path:
    path = locks.path("torch", PLATFORMS["linux-x86_64"])
    path.write_text(path.read_text("utf-8").replace("2.13", "2.12"), "utf-8")
    return path


def _without_the_model(locks: Locks) -> Path:
    locks.path("model").unlink()
    return locks.path("model")


def _one_more(locks: Locks) -> Path:
    return shutil.copy(locks.path("torch", PLATFORMS["linux-x86_64"]), locks.path("torch", PLATFORMS["linux-aarch64"]))


@pytest.mark.parametrize(
    "change",
    [
        _other_hash,
        _without_a_hash,
        _without_a_transitive_requirement,
        _with_a_stranger,
        _without_torch,
        _other_torch,
        _without_the_model,
        _one_more,
    ],
)
def test_a_set_that_was_changed_by_hand_is_found_though_pyproject_agrees(
    checkout: Path, change: Callable[[Locks], Path]
) -> None:
    path = change(Locks.open(checkout))
    (told,) = Locks.open(checkout).disagreements()
    assert told.startswith(str(path.relative_to(checkout)))
    assert "`make lock`" in told


def test_the_sums_are_what_sha256sum_reads(checkout: Path) -> None:
    command = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(command, cwd=Locks.open(checkout).folder, check=False).returncode == 0


def test_the_check_fails_by_its_exit_code(checkout: Path) -> None:
    command = [sys.executable, "-m", "ops.wheels.locking", "--check", "--root", checkout]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    Locks.open(checkout).path("search", PLATFORMS["linux-aarch64"]).unlink()
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "linux-aarch64/search.txt is missing" in run.stderr


@pytest.mark.parametrize(
    "line",
    [
        "numpy==2.4.6",
        "numpy>=2 --hash=sha256:" + "0" * 64,
        "--index-url https://index.example/simple",
        "numpy @ https://index.example/numpy-2.4.6-py3-none-any.whl --hash=sha256:" + "0" * 64,
        "--find-links ../wheels",
    ],
)
def test_what_has_no_hash_or_names_an_address_is_no_set(line: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_lock(f"{line}\n", "search.txt")


_names = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
_hashes = st.frozensets(st.text("0123456789abcdef", min_size=64, max_size=64), min_size=1, max_size=3)


@given(st.dictionaries(_names, st.tuples(_names, _hashes), max_size=5))
def test_a_set_reads_as_it_was_written(content: dict[str, tuple[str, frozenset[str]]]) -> None:
    pins = [
        Pin(name, version, hashes, file=f"{name}-{version}-py3-none-any.whl")
        for name, (version, hashes) in sorted(content.items())
    ]
    assert parse_lock(format_lock(pins), "set.txt") == pins


_tags = st.tuples(
    st.sampled_from(["py3", "py2", "py2.py3", "py311", "py312", "cp311", "cp39", "cp312", "cp310.cp311", "pp311"]),
    st.sampled_from(["none", "abi3", "cp311", "cp312", "cp311t"]),
    st.sampled_from(
        [
            f"{system}_{machine}"
            for system, machine in itertools.product(
                ["manylinux_2_17", "manylinux_2_36", "manylinux2014", "musllinux_1_1", "linux", "macosx_11_0"],
                ["x86_64", "aarch64", "arm64"],
            )
        ]
        + ["any", "win_amd64", "manylinux2014_x86_64.manylinux_2_17_x86_64"]
    ),
)


@given(_tags, st.sampled_from(list(PLATFORMS.values())))
def test_a_wheel_fits_an_image_just_where_its_tags_say_so(tags: tuple[str, str, str], platform: Platform) -> None:
    supported = {
        *cpython_tags(IMAGE_PYTHON, platforms=platform.tags),
        *compatible_tags(IMAGE_PYTHON, "cp311", platforms=platform.tags),
    }
    name = "-".join(("some_thing", "1.0", *tags))
    wheel = WheelName.parse(f"{name}.whl")
    assert platform.fits(wheel, IMAGE_PYTHON) == bool(parse_tag("-".join(tags)) & supported)
