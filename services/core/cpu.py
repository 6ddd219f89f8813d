"""How many threads a service may use: the CPU quota of the container, not the cores of the host."""

from __future__ import annotations

import math
import os
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def cpu_threads(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int:
    """Return the number of threads, at least 1.

    The smaller of the processors that this process may run on and the quota of its control group and of every group
    above it, rounded up (openvinotoolkit/openvino#37838: a pool sized to the host under a quota is throttled).
    """
    processors = len(os.sched_getaffinity(0))
    quota = cpu_quota(mount, membership)
    return max(1, processors if quota is None else min(processors, math.ceil(quota)))


def cpu_quota(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> float | None:
    """Return the CPU quota in processors, from cgroup v2 or v1; None when there is none."""
    quotas: list[float] = []
    for hierarchy, group in _groups(mount, membership):
        # In a container the file names the host's path while the mount shows the container's own root, so walk up
        # from wherever the path exists to the root of the mount.
        here = hierarchy / group.lstrip("/")
        for directory in (here, *here.parents):
            if directory.is_relative_to(hierarchy):
                quota = _read_v2(directory) or _read_v1(directory)
                if quota is not None:
                    quotas.append(quota)
    return min(quotas, default=None)


def _groups(mount: Path, membership: Path) -> list[tuple[Path, str]]:
    """Return the hierarchies that may limit CPU time, each with this process's group in it."""
    try:
        lines = membership.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    groups: list[tuple[Path, str]] = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            groups.append((mount, group))
        elif "cpu" in controllers.split(","):
            groups.extend((mount / name, group) for name in (controllers, "cpu", "cpu,cpuacct"))
    return groups or [(mount, "/"), (mount / "cpu", "/")]


def _read_v2(directory: Path) -> float | None:
    words = _read(directory / "cpu.max").split()
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _read_v1(directory: Path) -> float | None:
    quota = _read(directory / "cpu.cfs_quota_us").strip()
    period = _read(directory / "cpu.cfs_period_us").strip()
    if not quota.isdigit() or not period.isdigit() or int(quota) == 0 or int(period) == 0:
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
