"""The pod for one host fits the images: their ports, their mount points, and what a cluster would forbid."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ops.images.images import POSTGRES, ROOT, load_catalogue

FILE = ROOT / "ops" / "compose" / "undercroft.yaml"


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    loaded = yaml.safe_load(FILE.read_text("utf-8"))
    assert isinstance(loaded, dict)
    return loaded["spec"]


def containers(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in pod["containers"]}


def test_every_service_is_there_on_the_ports_of_its_image(pod: dict[str, Any]) -> None:
    images = load_catalogue().images
    assert set(containers(pod)) == {"embed", "ingest", "search", "decisions", "migrate", POSTGRES}
    for name, container in containers(pod).items():
        assert container["image"] == f"@IMAGES@/{name}:@TAG@"
        ports = {one["containerPort"] for one in container.get("ports", ())}
        image = images[name]
        assert ports == {port for port in (image.port, image.metrics_port) if port}
        if image.port:
            assert container["livenessProbe"]["exec"]["command"][-1] == f"127.0.0.1:{image.port}"
        assert all(one["hostIP"] == "@ADDRESS@" for one in container.get("ports", ()))


def test_nothing_is_writable_but_tmp_and_what_each_service_owns(pod: dict[str, Any]) -> None:
    volumes = {one["name"]: one for one in pod["volumes"]}
    for name, container in containers(pod).items():
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["runAsUser"] > 0
        mounts = {one["name"]: one for one in container["volumeMounts"]}
        assert "emptyDir" in volumes[f"undercroft-tmp-{name}"]
        assert mounts[f"undercroft-tmp-{name}"]["mountPath"] == "/tmp"
        for mount in mounts.values():
            assert mount["name"] in volumes
            assert "hostPath" not in volumes[mount["name"]] or mount.get("readOnly") is True


def test_only_ingest_writes_to_the_shared_volume(pod: dict[str, Any]) -> None:
    writers = {
        name
        for name, container in containers(pod).items()
        for one in container["volumeMounts"]
        if one["name"] == "sidecars" and not one.get("readOnly")
    }
    assert writers == {"ingest"}


def test_every_container_has_a_bound_and_no_secret_is_written_down(pod: dict[str, Any]) -> None:
    for container in containers(pod).values():
        assert container["resources"]["limits"]["memory"]
        for variable in container.get("env", ()):
            is_secret = any(word in variable["name"] for word in ("PASSWORD", "DATABASE_URL"))
            assert not is_secret or "secretKeyRef" in variable["valueFrom"]
