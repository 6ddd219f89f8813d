"""An index that was made on one kind of processor and is asked on another says so (microsoft/onnxruntime#6004)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from undercroft.common.v1 import common_pb2
from undercroft.search.v1 import search_pb2

from tests.support.appliance import Appliance, running_appliance

# Takes instruction sets away, as another processor would lack them.
OTHER_PROCESSOR = {"ONEDNN_MAX_CPU_ISA": "AVX"}


@pytest.fixture
def own_appliance(tmp_path: Path) -> Iterator[Appliance]:
    with running_appliance(tmp_path / "home") as running:
        yield running


def dense_leg(appliance: Appliance, query: str) -> search_pb2.LegReport:
    response = appliance.search(query, "drift", preset="dense")
    assert response.hits
    return next(leg for leg in response.legs if leg.leg == "dense")


def test_vectors_of_another_kind_of_processor_are_reported_until_they_are_made_anew(
    own_appliance: Appliance, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    for verb in ("open", "close", "renew"):
        (folder / f"{verb}.py").write_text(f'def {verb}_session(user):\n    """{verb} the session of a user."""\n')
    own_appliance.create_project("drift", [folder])
    own_appliance.index("drift")
    assert dense_leg(own_appliance, "end a session").state == common_pb2.METHOD_STATE_READY

    own_appliance.restart(OTHER_PROCESSOR)
    told = dense_leg(own_appliance, "end a session")
    assert told.state == common_pb2.METHOD_STATE_DEGRADED
    assert "compute otherwise" in told.reason
    assert "--re-embed" in told.remedy

    report = own_appliance.index("drift", re_embed=True)
    assert report.published
    assert dense_leg(own_appliance, "end a session").state == common_pb2.METHOD_STATE_READY

    # Part of them made on the first kind again: both are in the index.
    own_appliance.restart()
    (folder / "count.py").write_text('def count_sessions(user):\n    """count the sessions of a user."""\n')
    own_appliance.index("drift")
    assert dense_leg(own_appliance, "end a session").state == common_pb2.METHOD_STATE_DEGRADED
