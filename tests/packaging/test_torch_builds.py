"""Torch only as a build for processors, torchvision only as its twin: by their files, and by an import."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.wheels import builds, installer
from ops.wheels.files import sha256_of
from ops.wheels.index import write_index
from ops.wheels.locks import parse_lock
from services.core.errors import InvalidArgument
from tests.support.wheelhouse import SmallHouse, make_wheel

# As much of torch as the gate runs.
TORCH = """
__version__ = "2.0"
class version: cuda, hip = {cuda!r}, None
class Tensor(list):
    def sum(self): return sum(self)
def ones(size): return Tensor([1.0] * size)
def tensor(values): return values
"""
# What an index build of torchvision says beside another torch.
BROKEN_VISION = 'raise RuntimeError("operator torchvision::nms does not exist")\n'
WHOLE_VISION = "class ops:\n    @staticmethod\n    def nms(boxes, scores, overlap): return [0]\n"


def _torch(folder: Path, version: str = "2.0+cpu", cuda: str | None = None) -> Path:
    return make_wheel(folder, "torch", version, files={"torch.py": TORCH.format(cuda=cuda)})


def _vision(folder: Path, version: str = "0.15+cpu", torch: str = "2.0", code: str = WHOLE_VISION) -> Path:
    return make_wheel(folder, "torchvision", version, files={"torchvision.py": code}, requires=[f"torch=={torch}"])


def _refused(mirror: Path, recorded: set[str]) -> list[str]:
    hashes = {path: sha256_of(path) for path in mirror.glob("*.whl")}
    return [path.name for path, _ in builds.refuse_builds(hashes, recorded)]


def test_torch_whose_hash_is_recorded_is_accepted(tmp_path: Path) -> None:
    assert _refused(tmp_path, {sha256_of(_torch(tmp_path, "2.0"))}) == []


def test_torch_is_refused_where_another_hash_is_recorded_whatever_its_version_says(tmp_path: Path) -> None:
    wheel = _torch(tmp_path, "2.0+cpu")
    assert _refused(tmp_path, {"0" * 64}) == [wheel.name]


@pytest.mark.parametrize(("version", "accepted"), [("2.0+cpu", True), ("2.0", False), ("2.0+cu130", False)])
def test_without_a_record_the_version_must_say_cpu(tmp_path: Path, version: str, accepted: bool) -> None:
    wheel = _torch(tmp_path, version)
    assert _refused(tmp_path, set()) == ([] if accepted else [wheel.name])


@pytest.mark.parametrize(
    ("version", "torch", "is_twin"),
    [("0.15+cpu", "2.0", True), ("0.15", "2.0", False), ("0.15+cpu", "2.1", False), ("0.15+cu130", "2.0", False)],
)
def test_torchvision_is_refused_unless_built_with_that_torch(
    tmp_path: Path, version: str, torch: str, is_twin: bool
) -> None:
    recorded = {sha256_of(_torch(tmp_path))}
    vision = _vision(tmp_path, version, torch)
    assert _refused(tmp_path, recorded) == ([] if is_twin else [vision.name])


def test_torchvision_is_refused_where_no_torch_is(tmp_path: Path) -> None:
    vision = _vision(tmp_path)
    assert _refused(tmp_path, set()) == [vision.name]


def test_a_mirror_with_another_build_of_torch_is_refused(house: SmallHouse, tmp_path: Path) -> None:
    house.lock("torch", [_torch(tmp_path)])
    wheel = _torch(house.mirror, "2.0", cuda="13.0")
    write_index(house.mirror)
    (problem,) = house.problems("search", "dev")
    assert (problem.reason, problem.subject) == ("TORCH_BUILD", wheel.name)


def test_a_torchvision_that_is_no_wheel_is_told_with_all_else(house: SmallHouse, tmp_path: Path) -> None:
    house.lock("torch", [_torch(tmp_path)])
    wheel = _torch(house.mirror, "2.0", cuda="13.0")
    garbage = house.mirror / "torchvision-0.15+cpu-py3-none-any.whl"
    garbage.write_bytes(b"no archive")
    (house.mirror / "torch-garbage.whl").write_bytes(b"")
    told = {problem.subject: problem.reason for problem in house.problems("search", "dev")}
    assert told == {wheel.name: "TORCH_BUILD", garbage.name: "TORCH_BUILD", "torch-garbage.whl": "NO_WHEEL"}


def test_only_the_import_sees_a_torchvision_that_does_not_fit(house: SmallHouse, tmp_path: Path) -> None:
    """Versions, hashes and the resolver are content; the fresh process is not."""
    wheels = [_torch(house.mirror), _vision(house.mirror, code=BROKEN_VISION)]
    house.lock("torch", wheels)
    requirements = [house.locks.path("torch", house.platform)]
    assert {entry.project for entry in installer.resolve(requirements, house.mirror, [], tmp_path)} == {
        "torch",
        "torchvision",
    }
    target = tmp_path / "target"
    installer.install(requirements, house.mirror, [], target)
    assert "torchvision::nms does not exist" in builds.prove_torch(target)


def test_a_build_for_gpus_is_refused_by_what_it_says_when_imported(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH.format(cuda="13.0"), "utf-8")
    assert "a build for GPUs (13.0)" in builds.prove_torch(tmp_path)


def test_twins_that_compute_pass_the_gate(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH.format(cuda=None), "utf-8")
    assert builds.prove_torch(tmp_path) == ""
    (tmp_path / "torchvision.py").write_text(WHOLE_VISION, "utf-8")
    assert builds.prove_torch(tmp_path) == ""


def test_a_missing_torch_fails_the_gate(tmp_path: Path) -> None:
    assert "No module named 'torch'" in builds.prove_torch(tmp_path)


def test_a_carried_wheel_of_torch_is_recorded_only_for_what_it_is(house: SmallHouse, tmp_path: Path) -> None:
    wheel = _torch(tmp_path)
    builds.record_torch(house.locks, house.platform, wheel)
    (pin,) = parse_lock(house.locks.path("torch", house.platform).read_text("utf-8"), "torch.txt")
    assert (pin.version, pin.hashes, pin.file) == ("2.0+cpu", {sha256_of(wheel)}, wheel.name)
    assert house.locks.changed() == []
    for wrong in (_torch(tmp_path, "2.0"), _torch(tmp_path, "2.1+cpu"), make_wheel(tmp_path, "stranger")):
        with pytest.raises(InvalidArgument, match=r"is not torch 2\.0\+cpu"):
            builds.record_torch(house.locks, house.platform, wrong)
