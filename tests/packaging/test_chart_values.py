"""The chart's values: each explained, typed, read by a template, and every setting of a service among them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

import services.core.telemetry
import services.embed.metrics
import services.search.metrics  # noqa: F401 - they register what the dashboard names
from services.core.settings import ServiceSettings
from services.decisions.settings import DecisionsSettings
from services.embed.settings import EmbedSettings
from services.ingest.settings import IngestSettings
from services.search.settings import SearchSettings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "undercroft"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
SETTINGS: dict[str, type[ServiceSettings]] = {
    "embed": EmbedSettings,
    "ingest": IngestSettings,
    "search": SearchSettings,
    "decisions": DecisionsSettings,
}
# What the chart sets from values of its own.
MANAGED = {
    "data_dir",
    "database_prepare",
    "database_url",
    "decisions_target",
    "drain_s",
    "embed_target",
    "git_config_file",
    "git_hosts",
    "ingest_target",
    "listen",
    "local_dir",
    "log_level",
    "metrics_listen",
    "models_dir",
    "pipeline_file",
    "presets_dir",
    "search_target",
    "secrets_dir",
    "shutdown_grace_s",
    "sidecar_dir",
    "wheels_dir",
}


def schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All schemas of objects and values below one, with their paths."""
    yield path, schema
    for key, value in schema.get("properties", {}).items():
        yield from schemas(value, f"{path}.{key}")
    if isinstance(schema.get("items"), dict):
        yield from schemas(schema["items"], f"{path}[]")


def keys(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All keys of the values, as paths."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from keys(inner, (*path, key))


def schema_of(path: tuple[str, ...]) -> dict[str, Any]:
    schema = SCHEMA
    for key in path:
        schema = schema["properties"][key]
        if "allOf" in schema:
            schema = {**SCHEMA["definitions"]["image"], **schema}
    return schema


OPEN = ("podSecurityContext", "securityContext")
LABELS = ("monitoring", "dashboards", "labels")
# Maps whose keys are not the chart's.
PATHS = [path for path in keys(VALUES) if path[0] not in OPEN or len(path) == 1]
PATHS = [path for path in PATHS if path[: len(LABELS)] != LABELS or path == LABELS]


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_each_value_is_explained_by_the_schema(path: tuple[str, ...]) -> None:
    assert len(schema_of(path)["description"]) > 3


def test_each_key_of_the_schema_is_explained_and_is_a_value() -> None:
    known = {".".join(("", *path)) for path in keys(VALUES)}
    for path, schema in [*schemas(SCHEMA), *schemas(SCHEMA["definitions"]["image"])]:
        if path and not path.endswith("[]"):
            assert schema.get("description"), path
        if path and "[]" not in path and ".config." not in path and path != ".global" and path.count(".") < 3:
            assert path in known or path in (".repository", ".tag", ".digest"), path


def test_the_schema_is_closed() -> None:
    """An object that names its keys has no others: a misspelt value must not be ignored."""
    for path, schema in [*schemas(SCHEMA), *schemas(SCHEMA["definitions"]["image"])]:
        if "properties" in schema:
            assert schema["additionalProperties"] is False, path


def test_no_value_can_be_left_out_by_null() -> None:
    """Helm removes a key whose value is null; without a value of its own some template would make nonsense of it."""
    for path in PATHS:
        if path[0] not in OPEN and "allOf" not in schema_of(path[:-1]):
            assert path[-1] in schema_of(path[:-1])["required"], path


def test_each_value_has_a_comment() -> None:
    """A comment stands above a key or above the keys right before it; the services' equal blocks are explained once."""
    commented = False
    path: list[str] = []
    explained: set[str] = set()
    for line in (CHART / "values.yaml").read_text("utf-8").splitlines():
        if not line.strip():
            commented = False
        elif line.lstrip().startswith("#"):
            commented = True
        elif match := re.match(r"^( *)([A-Za-z]+):(.*)$", line):
            path[len(match[1]) // 2 :] = [match[2]]
            name = ".".join(path)
            alike = ".".join(["embed", *path[1:]])
            if commented:
                explained.add(name)
            elif match[3].strip() and not {name, alike, ".".join(path[:-1])} & explained:
                # The keys of these need no words beyond their names.
                assert path[0] in OPEN or path[-2] in {"autoscaling", "service", "podDisruptionBudget", "postgres"}, (
                    name
                )


def test_each_value_is_read_by_a_template() -> None:
    templates = "\n".join(path.read_text("utf-8") for path in sorted(CHART.rglob("templates/**/*")) if path.is_file())
    words = set(re.findall(r"[.\s\"(]([A-Za-z]+)", templates))
    unread = {".".join(path) for path in PATHS if path[0] != "images" and path[-1] not in words}
    # Services are reached by their names, from a list; what they have in common by the values of that name.
    assert unread - set(SETTINGS) == set()


@pytest.mark.parametrize("service", SETTINGS)
def test_each_setting_of_a_service_can_be_given(service: str) -> None:
    given = set(SCHEMA["properties"][service]["properties"]["config"]["properties"])
    assert given | (MANAGED & set(SETTINGS[service].model_fields)) == set(SETTINGS[service].model_fields)
    assert not given & MANAGED


@pytest.mark.parametrize("service", SETTINGS)
def test_a_setting_has_the_type_that_the_service_reads(service: str) -> None:
    types = {int: "integer", float: "number", bool: "boolean"}
    for name, schema in SCHEMA["properties"][service]["properties"]["config"]["properties"].items():
        annotation = SETTINGS[service].model_fields[name].annotation
        assert schema["type"] == (types.get(annotation, "string") if annotation else "string"), name


def shape(value: object) -> object:
    return {key: shape(inner) for key, inner in value.items()} if isinstance(value, dict) else type(value).__name__


def test_profiles_differ_in_sizes_alone() -> None:
    profiles = {
        path.stem: yaml.safe_load(path.read_text("utf-8")) for path in sorted((CHART / "files/profiles").glob("*.yaml"))
    }
    assert set(profiles) == set(SCHEMA["properties"]["profile"]["enum"])
    assert len({json.dumps(shape(profile), sort_keys=True) for profile in profiles.values()}) == 1


def test_the_dashboard_names_metrics_that_are_there() -> None:
    known = {sample.name for metric in REGISTRY.collect() for sample in metric.samples}
    known |= {f"{metric.name}{suffix}" for metric in REGISTRY.collect() for suffix in ("", "_total", "_bucket")}
    board = json.loads((CHART / "files/dashboard.json").read_text("utf-8"))
    named = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\w+(?=\{)", target["expr"])
    }
    assert named
    assert named <= known
