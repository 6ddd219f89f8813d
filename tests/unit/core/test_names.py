"""Resource names survive a round trip, and nonsense is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core import names
from services.core.errors import InvalidArgument


@given(st.text(min_size=1, max_size=50))
def test_any_path_is_a_decision_id(path: str) -> None:
    assert names.parse_decision(names.decision_name("project", path)) == ("project", path)


def test_names_round_trip() -> None:
    assert names.parse_project(names.project_name("a.b-c_1")) == "a.b-c_1"
    assert names.parse_source(names.source_name("a", "b")) == ("a", "b")
    assert names.parse_operation(names.operation_name("a", 42)) == ("a", 42)


@pytest.mark.parametrize("name", ["", "projects", "projects/", "project/a", "projects/a/b", "/projects/a"])
def test_other_forms_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument) as told:
        names.parse_project(name)
    assert told.value.reason == "INVALID_RESOURCE_NAME"


@pytest.mark.parametrize("value", ["", "A", "-a", "a/b", "a b", "ä", "a" * 64])
def test_invalid_ids_are_refused(value: str) -> None:
    with pytest.raises(InvalidArgument):
        names.check_id(value, "project")


@pytest.mark.parametrize(
    "name", ["projects/a/operations/x", "projects/a/operations/²", "projects/a/operations/" + "9" * 40]
)
def test_operations_are_numbers(name: str) -> None:
    with pytest.raises(InvalidArgument):
        names.parse_operation(name)


@pytest.mark.parametrize("name", ["mod\u00e8le", "\u0661", "a b", "a/b", "..", ".a", "-a", "a\n", "a" * 129])
def test_names_of_models_are_names_of_folders_on_any_volume(name: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        names.check_model(name)
    assert raised.value.reason == "INVALID_MODEL_NAME"
    assert names.check_model("All-MiniLM_L6.v2") == "All-MiniLM_L6.v2"
    assert names.check_model("a" * 128) == "a" * 128
