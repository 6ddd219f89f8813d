"""Lint and render the chart, and hold what it renders against the API of each version of Kubernetes.

``check.py OUT``, in the environment of ops/helm/tools.txt: writes OUT/<case>-<version>.yaml and ends with 1 at anything
that helm or a schema objects to. A warning is an objection.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import kubernetes_validate.utils
import yaml
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from ops.helm.rendering import CASES, CHART, HELMS, TOOLS, VERSIONS, Case, Manifest, Refused, render

# Definitions of other projects, which no schema of Kubernetes has.
_FOREIGN = {"monitoring.coreos.com/v1"}
# Helm 4 is compared with Helm 3 at the versions where templates differ.
_COMPARED = ("1.20", "1.24", "1.31", "1.37")
_RANDOM = re.compile(r"^(  (?:page-token\.key|password): ).*$", re.MULTILINE)


def lint() -> Iterator[str]:
    """Tell what helm's linter objects to, with each Helm and each case."""
    for helm in HELMS.values():
        for case in CASES:
            command = [str(helm), "lint", "--strict", "--quiet", str(CHART), *case.arguments()]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                yield f"{helm.name} lint, {case.name}: {done.stdout}{done.stderr}"


def render_all(out: Path) -> Iterator[str]:
    """Render all cases for all versions to files; tell what can't be, and where Helm 4 renders something else."""
    out.mkdir(parents=True, exist_ok=True)
    work = [(case, version) for case in CASES for version in VERSIONS]
    with ThreadPoolExecutor(2) as pool:
        yield from (problem for problem in pool.map(functools.partial(_render, out), work) if problem)


def _render(out: Path, work: tuple[Case, str]) -> str:
    case, version = work
    try:
        text = render(case, version)
        (out / f"{case.name}-{version}.yaml").write_text(text, "utf-8")
        if version in _COMPARED and _sorted(text) != _sorted(render(case, version, "helm4")):
            return f"helm 3 and 4 render {case.name} for {version} differently"
    except Refused as error:
        return f"{case.name} for {version}: {error}"
    return ""


def _sorted(text: str) -> list[str]:
    """Return the documents in an order of their own: that of hooks and kinds is not the same in both."""
    return sorted(part.strip() for part in re.split(r"^---$", _RANDOM.sub(r"\1", text), flags=re.MULTILINE))


def validate_all(out: Path) -> Iterator[str]:
    """Tell what the API of the version would refuse, in all that was rendered."""
    load = functools.cache(kubernetes_validate.utils.schema_contents)
    kubernetes_validate.utils.schema_contents = load
    seen: set[tuple[str, str]] = set()
    for case in CASES:
        for version in VERSIONS:
            text = (out / f"{case.name}-{version}.yaml").read_text("utf-8")
            for part in re.split(r"^---$", text, flags=re.MULTILINE):
                if (version, part) in seen:
                    continue
                seen.add((version, part))
                one = yaml.load(part, Loader=yaml.CSafeLoader)
                problem = _problem(one, version) if one else ""
                if problem:
                    yield f"{case.name} for {version}, {one['kind']} {one['metadata']['name']}: {problem}"


def _problem(one: Manifest, version: str) -> str:
    if one["apiVersion"] in _FOREIGN:
        return ""
    try:
        if tuple(map(int, version.split("."))) < (1, 25):
            _validate_old(one, version)
        else:
            kubernetes_validate.validate(one, version, strict=True)
    except jsonschema.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    except (kubernetes_validate.SchemaNotFoundError, FileNotFoundError):
        return f"Kubernetes {version} has no {one['apiVersion']} {one['kind']}"
    return ""


def _validate_old(one: Manifest, version: str) -> None:
    group = one["apiVersion"].split("/")
    name = "-".join([one["kind"].lower(), *([group[0].split(".")[0], group[1]] if len(group) > 1 else group)])
    folder = TOOLS / "schemas" / f"v{version}.0-local-strict"
    validator = jsonschema.Draft7Validator(_read(folder / f"{name}.json"), registry=_definitions(folder))
    validator.validate(one)


@functools.cache
def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


@functools.cache
def _definitions(folder: Path) -> Registry[Any]:
    contents = Resource.from_contents(_read(folder / "_definitions.json"), default_specification=DRAFT7)
    return Registry().with_resource("_definitions.json", contents)


def see_faults() -> Iterator[str]:
    """Tell where a fault that is there is not seen: a check that sees none proves nothing."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "faulty"}}
    faults = ({"spec": {"ports": [{"port": "http"}]}}, {"spec": {"port": 80}}, {"apiVersion": "v0"})
    for version in VERSIONS:
        if _problem({**service, "spec": {"ports": [{"port": 80}]}}, version):
            yield f"a faultless Service is refused for {version}"
        yield from (
            f"{fault} is not seen for {version}" for fault in faults if not _problem({**service, **fault}, version)
        )


def main(out: Path) -> None:
    failed = 0
    steps = (("self", see_faults()), ("lint", lint()), ("render", render_all(out)), ("validate", validate_all(out)))
    for step, problems in steps:
        start = time.monotonic()
        for problem in problems:
            failed += 1
            print(f"{step}: {problem}", flush=True)
        print(f"{step}: {time.monotonic() - start:.0f} s", flush=True)
        if failed:
            sys.exit(f"the chart has {failed} faults")
    print(f"{len(CASES)} cases for {len(VERSIONS)} versions of Kubernetes, with {len(HELMS)} versions of Helm")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
