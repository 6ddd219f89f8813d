from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.appliance.discovery import require, running
from services.appliance.home import Home
from services.appliance.process import ProcessIdentity, identify
from services.appliance.record import (
    ApplianceRecord,
    ApplianceState,
    Health,
    ServiceRecord,
    read_record,
    write_record,
)
from services.core.errors import NotReady

processes = st.builds(ProcessIdentity, st.integers(1, 2**22), st.integers(0, 2**60), st.text(max_size=40))
services = st.builds(
    ServiceRecord,
    name=st.text(max_size=10),
    target=st.text(max_size=20),
    metrics_target=st.text(max_size=20),
    health=st.sampled_from(Health),
    restarts=st.integers(0, 10**6),
    process=st.none() | processes,
)
records = st.builds(
    ApplianceRecord,
    state=st.sampled_from(ApplianceState),
    supervisor=processes,
    phase=st.text(),
    message=st.text(),
    remedy=st.text(),
    postgres_port=st.none() | st.integers(1, 65_535),
    services=st.lists(services, max_size=4).map(tuple),
)


@given(record=records)
def test_a_record_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, record: ApplianceRecord) -> None:
    path = tmp_path_factory.mktemp("run") / "appliance.json"
    write_record(path, record)
    assert read_record(path) == record
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"format": 2}', '{"format": 1, "state": "odd"}', '{"format": 1', "\x00"]
)
def test_what_is_no_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "appliance.json").write_text(text)
    assert read_record(tmp_path / "appliance.json") is None


def _record(state: ApplianceState, supervisor: ProcessIdentity) -> ApplianceRecord:
    service = ServiceRecord("embed", "127.0.0.1:10001", "127.0.0.1:10002", Health.SERVING, 0, None)
    return ApplianceRecord(state=state, supervisor=supervisor, services=(service,))


def test_only_a_live_and_ready_appliance_is_found(tmp_path: Path) -> None:
    import os

    home = Home(tmp_path / "home")
    with pytest.raises(NotReady, match="is not running"):
        require(home)
    home.create()
    alive = identify(os.getpid())
    assert alive is not None
    gone = ProcessIdentity(alive.pid, alive.start_ticks - 1, alive.boot_id)
    write_record(home.record, _record(ApplianceState.READY, gone))
    assert running(home) is None
    write_record(home.record, _record(ApplianceState.STARTING, alive))
    with pytest.raises(NotReady, match="is starting"):
        require(home)
    write_record(home.record, _record(ApplianceState.READY, alive))
    assert require(home).embed == "127.0.0.1:10001"


def test_a_record_of_a_later_release_is_not_misread(tmp_path: Path) -> None:
    path = tmp_path / "appliance.json"
    write_record(path, _record(ApplianceState.READY, ProcessIdentity(1, 1, "b")))
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "format": 2}))
    assert read_record(path) is None
