"""Threads follow the container's CPU quota, under both kinds of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.core.cpu import cpu_quota, cpu_threads


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    return tmp_path / "self-cgroup"


def test_v2_quota_of_the_container_root(tmp_path: Path, membership: Path) -> None:
    membership.write_text("0::/\n")
    _write(tmp_path / "cg/cpu.max", "150000 100000\n")
    assert cpu_quota(tmp_path / "cg", membership) == 1.5


def test_v2_quota_of_a_group_that_the_mount_does_not_show(tmp_path: Path, membership: Path) -> None:
    membership.write_text("0::/kubepods/pod1/container2\n")
    _write(tmp_path / "cg/cpu.max", "50000 100000\n")
    assert cpu_quota(tmp_path / "cg", membership) == 0.5


def test_the_tightest_quota_on_the_way_up_counts(tmp_path: Path, membership: Path) -> None:
    membership.write_text("0::/outer/inner\n")
    _write(tmp_path / "cg/outer/inner/cpu.max", "max 100000\n")
    _write(tmp_path / "cg/outer/cpu.max", "200000 100000\n")
    _write(tmp_path / "cg/cpu.max", "800000 100000\n")
    assert cpu_quota(tmp_path / "cg", membership) == 2.0


@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct"])
def test_v1_quota(tmp_path: Path, membership: Path, controllers: str) -> None:
    membership.write_text(f"5:memory:/m\n4:{controllers}:/docker/abc\n0::/\n")
    _write(tmp_path / f"cg/{controllers}/docker/abc/cpu.cfs_quota_us", "250000\n")
    _write(tmp_path / f"cg/{controllers}/docker/abc/cpu.cfs_period_us", "100000\n")
    assert cpu_quota(tmp_path / "cg", membership) == 2.5


@pytest.mark.parametrize("text", ["max 100000", "", "garbage", "100000 0"])
def test_no_quota_is_none(tmp_path: Path, membership: Path, text: str) -> None:
    membership.write_text("0::/\n")
    _write(tmp_path / "cg/cpu.max", text)
    assert cpu_quota(tmp_path / "cg", membership) is None


def test_v1_without_a_limit_is_none(tmp_path: Path, membership: Path) -> None:
    membership.write_text("4:cpu:/\n")
    _write(tmp_path / "cg/cpu/cpu.cfs_quota_us", "-1\n")
    _write(tmp_path / "cg/cpu/cpu.cfs_period_us", "100000\n")
    assert cpu_quota(tmp_path / "cg", membership) is None


def test_threads_are_the_quota_rounded_up_but_never_more_than_processors_nor_none(
    tmp_path: Path, membership: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership.write_text("0::/\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    for quota, threads in (("150000 100000", 2), ("1000 100000", 1), ("900000 100000", 4), ("max 100000", 4)):
        _write(tmp_path / "cg/cpu.max", quota)
        assert cpu_threads(tmp_path / "cg", membership) == threads
    assert cpu_threads(tmp_path / "absent", tmp_path / "absent") == 4
