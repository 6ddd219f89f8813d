from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.appliance.logs import described_tail, rotate, size, tail


def test_a_tail_is_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {n}\n" for n in range(10_000)))
    assert tail(log, 2) == "line 9998\nline 9999"
    start = size(log)
    assert tail(log, since_byte=start) == ""
    with log.open("ab") as file:
        file.write(b"caf\xe9\n")
    assert tail(log, since_byte=start) == "caf\ufffd"
    # The log was cut since.
    log.write_text("new\n")
    assert tail(log, since_byte=start) == "new"
    assert "is empty" in described_tail(tmp_path / "none")


@given(sizes=st.lists(st.integers(min_value=1, max_value=300), min_size=1, max_size=40))
def test_logs_stay_within_their_bound_and_keep_the_newest(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    log = folder / "service.log"
    written = ""
    with log.open("a") as writer:
        for number, length in enumerate(sizes):
            text = f"{number}:{'x' * length}\n"
            written += text
            writer.write(text)
            writer.flush()
            rotate(log, max_bytes=500, keep=2)
            assert size(log) <= 500
    kept = sorted(folder.iterdir(), key=lambda path: path.name, reverse=True)
    assert len(kept) <= 3
    assert sum(map(size, kept)) <= 3 * (500 + 310)
    assert written.endswith("".join(path.read_text() for path in kept))
