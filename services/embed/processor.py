"""The vector instruction sets of this processor, which decide how int8 is computed."""

from __future__ import annotations

from pathlib import Path

_KNOWN = ("amx_int8", "avx512_vnni", "avx_vnni", "avx512f", "avx2", "asimddp", "i8mm")


def describe_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name the instruction sets that matter for int8, ``baseline`` when there is none of them."""
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return "unknown"
    flags = next(
        (set(line.split(":", 1)[1].split()) for line in lines if line.startswith(("flags", "Features"))), set()
    )
    return " ".join(name for name in _KNOWN if name in flags) or "baseline"
