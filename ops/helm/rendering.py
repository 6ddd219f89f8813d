"""The chart as Helm renders it: cases of values, versions of Kubernetes, versions of Helm."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "undercroft"
TOOLS = ROOT / ".cache" / "chart"
HELMS = {"helm3": TOOLS / "helm3", "helm4": TOOLS / "helm4"}
VERSIONS = tuple(f"1.{minor}" for minor in range(20, 38))
RELEASE, NAMESPACE = "rel", "apps"

# An object of Kubernetes as YAML has it.
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Values that the chart is rendered with, by what they are an example of."""

    name: str
    files: tuple[Path, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """Return the options of helm."""
        files = [f"--values={file}" for file in self.files]
        return [*files, *(f"--set={key}={value}" for key, value in self.values.items())]


def _example(name: str) -> Case:
    return Case(name, (CHART / "examples" / f"{name}.yaml",))


CASES = (
    *(_example(name) for name in ("trial", "cloudnativepg", "managed", "openshift", "large")),
    Case("small", values={"postgres.enabled": "true", "profile": "small", "models.loader.enabled": "true"}),
    Case("medium", values={"postgres.enabled": "true", "profile": "medium", "tests.enabled": "false"}),
    Case(
        "large-profile",
        values={
            "postgres.enabled": "true",
            "profile": "large",
            "sidecars.accessMode": "ReadWriteMany",
            "networkPolicy.enabled": "false",
            "serviceAccount.create": "false",
            "fullnameOverride": "code",
            "probes.mode": "exec",
        },
    ),
    Case(
        "old-account",
        values={
            "database.existingSecret": "db",
            "networkPolicy.database[0].ipBlock.cidr": "10.0.0.1/32",
            "models.source": "image",
            "models.imageVolume": "never",
            "caBundle.secret": "ca",
            "caBundle.append": "false",
            "serviceAccount.name": "known",
            "migrations.podAnnotations.mesh": "off",
        },
    ),
)


class Refused(Exception):
    """Helm did not render; the message is what it said."""


def render(case: Case, version: str, helm: str = "helm3", *, more: Sequence[str] = ()) -> str:
    """Return what ``helm template`` prints. Raises Refused."""
    command = [
        str(HELMS[helm]),
        "template",
        RELEASE,
        str(CHART),
        f"--namespace={NAMESPACE}",
        f"--kube-version={version}",
        *case.arguments(),
        *more,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


@cache
def objects(name: str, version: str, helm: str = "helm3", more: tuple[str, ...] = ()) -> tuple[Manifest, ...]:
    """Return the objects of a case; the same ones for the same arguments, so leave them as they are."""
    case = next(case for case in CASES if case.name == name)
    text = render(case, version, helm, more=more)
    return tuple(one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one)
