"""What the chart renders, over cases of values and versions of Kubernetes: see ops/helm/rendering.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.helm.rendering import CASES, CHART, HELMS, NAMESPACE, RELEASE, Case, Manifest, Refused, objects, render
from services.decisions.settings import DecisionsSettings
from services.embed.settings import EmbedSettings
from services.ingest.pipeline import load_pipeline
from services.ingest.settings import IngestSettings
from services.search.pipeline import load_presets
from services.search.settings import SearchSettings

pytestmark = pytest.mark.skipif(
    not all(helm.exists() for helm in HELMS.values()), reason="helm is not unpacked: `make check-chart` does so"
)

NAMES = [case.name for case in CASES]
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
COMPONENTS: dict[str, Any] = yaml.safe_load((CHART / "files/components.yaml").read_text("utf-8"))
NEWEST, OLDEST = "1.37", "1.20"
DIGESTED = {"embed": "1", "ingest": "2", "search": "3", "decisions": "4", "migrate": "5", "models": "6"}
SETTINGS = {"embed": EmbedSettings, "ingest": IngestSettings, "search": SearchSettings, "decisions": DecisionsSettings}


def named(manifests: tuple[Manifest, ...], kind: str) -> dict[str, Manifest]:
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == kind}


def one_of(manifests: tuple[Manifest, ...], kind: str, ending: str) -> Manifest:
    found = [one for name, one in named(manifests, kind).items() if name.endswith(ending)]
    assert len(found) == 1, (kind, ending, [one["metadata"]["name"] for one in found])
    return found[0]


def templates(manifests: tuple[Manifest, ...]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """All pods: kind and name, labels, spec."""
    for one in manifests:
        pod = one if one["kind"] == "Pod" else one.get("spec", {}).get("template")
        if pod:
            yield f"{one['kind']}/{one['metadata']['name']}", pod["metadata"]["labels"], pod["spec"]


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def data_of(manifests: tuple[Manifest, ...], component: str) -> dict[str, str]:
    data = one_of(manifests, "ConfigMap", f"-{component}")["data"]
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize("name", NAMES)
def test_every_image_is_of_the_registry_and_fixed(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    values = yaml.safe_load(case.files[0].read_text("utf-8")) if case.files else {}
    registry = values.get("image", {}).get("registry", VALUES["image"]["registry"])
    secrets = values.get("image", {}).get("pullSecrets")
    pods = list(templates(objects(name, NEWEST)))
    assert pods
    for pod, _, spec in pods:
        assert spec.get("imagePullSecrets") == secrets, pod
        images = [container["image"] for container in containers(spec)]
        images += [volume["image"]["reference"] for volume in spec.get("volumes", []) if "image" in volume]
        for image in images:
            assert image.startswith(f"{registry}/"), pod
            if name == "large":
                assert re.fullmatch(r".*@sha256:([1-6])\1{63}", image), image
            else:
                assert re.fullmatch(r"[^:@]+(:\d+)?/[^:@]+:\d+\.\d+\.\d+", image), image


def test_each_digest_is_of_its_own_image() -> None:
    manifests = objects("large", NEWEST)
    for component in COMPONENTS:
        (container,) = one_of(manifests, "Deployment", f"-{component}")["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"registry.corp/mirror/undercroft/{component}@sha256:{DIGESTED[component] * 64}"


@pytest.mark.parametrize("name", NAMES)
def test_every_container_is_restricted(name: str) -> None:
    """What Pod Security calls restricted, and a root file system that nobody writes to."""
    given = {"runAsUser", "runAsGroup", "fsGroup"}
    for pod, _, spec in templates(objects(name, NEWEST)):
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True, pod
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        # OpenShift gives users and groups itself.
        assert given & set(context) == (set() if name == "openshift" else given)
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        for container in containers(spec):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["privileged"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert (
                "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]} or container["name"] == "models"
            )
            assert set(container["resources"]) == {"requests", "limits"}
        assert not any("hostPath" in volume for volume in spec["volumes"])


def test_a_security_context_can_be_left_out() -> None:
    more = ("--set=podSecurityContext=null", "--set=securityContext=null")
    for _, _, spec in templates(objects("trial", NEWEST, more=more)):
        assert "securityContext" not in spec
        assert not any("securityContext" in container for container in containers(spec))


@pytest.mark.parametrize("name", NAMES)
def test_ports_name_their_protocol_and_lead_to_a_container(name: str) -> None:
    """Helm 4 applies on the server, where a port without a protocol is refused."""
    manifests = objects(name, NEWEST)
    for _, _, spec in templates(manifests):
        for container in containers(spec):
            assert all(port["protocol"] == "TCP" for port in container.get("ports", []))
    for service in named(manifests, "Service").values():
        spec = service["spec"]
        chosen = [pod for _, labels, pod in templates(manifests) if matches({"matchLabels": spec["selector"]}, labels)]
        assert len(chosen) == 1
        names = {port["name"]: port["containerPort"] for port in chosen[0]["containers"][0]["ports"]}
        for port in spec["ports"]:
            assert port["protocol"] == "TCP"
            assert names[port["targetPort"]] == port["port"]


@pytest.mark.parametrize("name", NAMES)
def test_selectors_choose_the_pods_of_one_component(name: str) -> None:
    manifests = objects(name, NEWEST)
    for one in manifests:
        if one["kind"] in ("Deployment", "StatefulSet"):
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert matches(one["spec"]["selector"], labels)
            assert len([pod for pod, each, _ in templates(manifests) if matches(one["spec"]["selector"], each)]) == 1
        if one["kind"] == "PodDisruptionBudget":
            assert len([pod for pod, each, _ in templates(manifests) if matches(one["spec"]["selector"], each)]) == 1
        if one["kind"] == "HorizontalPodAutoscaler":
            assert "replicas" not in named(manifests, "Deployment")[one["spec"]["scaleTargetRef"]["name"]]["spec"]
        if one["kind"] == "ServiceMonitor":
            services = [
                service
                for service in named(manifests, "Service").values()
                if matches(one["spec"]["selector"], service["metadata"]["labels"])
                and any(port["name"] == one["spec"]["endpoints"][0]["port"] for port in service["spec"]["ports"])
            ]
            assert len(services) == 1


@pytest.mark.parametrize("name", [name for name in NAMES if name != "large-profile"])
def test_policies_open_what_is_called_and_nothing_else(name: str) -> None:
    manifests = objects(name, NEWEST)
    policies = named(manifests, "NetworkPolicy").values()
    pods = {labels["app.kubernetes.io/component"]: labels for _, labels, _ in templates(manifests)}
    (default,) = (
        one["spec"]
        for one in policies
        if set(one["spec"]) == {"podSelector", "policyTypes"}
        and not (one["spec"]["podSelector"]["matchLabels"].keys() & {"app.kubernetes.io/component"})
    )
    assert all(matches(default["podSelector"], labels) for labels in pods.values())
    assert default["policyTypes"] == ["Ingress", "Egress"]
    called = {component: set(is_["calls"]) for component, is_ in COMPONENTS.items()} | {"test": set(COMPONENTS)}
    databases = {component for component, is_ in COMPONENTS.items() if is_["database"]} | {"migrate"}
    ports = {component: is_["port"] for component, is_ in COMPONENTS.items()} | {"postgres": 5432}
    reached: dict[str, set[str]] = {}
    for one in policies:
        spec = one["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        component = spec["podSelector"]["matchLabels"].get("app.kubernetes.io/component", "")
        for rule in spec.get("egress", []):
            # A rule without peers, or without ports, would open everything.
            assert rule["to"]
            assert rule["ports"]
            for peer in rule["to"]:
                target = peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component", "")
                if target:
                    assert [port["port"] for port in rule["ports"]] == [ports[target]]
                    assert all(port["protocol"] == "TCP" for port in rule["ports"])
                    reached.setdefault(component, set()).add(target)
        for rule in spec.get("ingress", []):
            assert rule["from"]
            assert rule["ports"]
    own = "postgres" in pods
    for component, labels in pods.items():
        expected = called.get(component, set()) | ({"postgres"} if own and component in databases else set())
        assert reached.get(component, set()) == expected
        for target in expected:
            rules = [
                rule
                for one in policies
                if matches(one["spec"]["podSelector"], pods[target])
                for rule in one["spec"].get("ingress", [])
                if any(set(peer) == {"podSelector"} and matches(peer["podSelector"], labels) for peer in rule["from"])
                and any(port["port"] == ports[target] for port in rule["ports"])
            ]
            assert rules, f"{component} calls {target}"


def test_a_service_that_calls_nobody_may_reach_nobody() -> None:
    for name in ("trial", "large"):
        assert "egress" not in one_of(objects(name, NEWEST), "NetworkPolicy", "-embed")["spec"]


@pytest.mark.parametrize(("version", "kind"), [("1.20", "exec"), ("1.23", "exec"), ("1.24", "grpc"), ("1.37", "grpc")])
def test_health_is_asked_by_what_the_version_has(version: str, kind: str) -> None:
    manifests = objects("trial", version)
    for component, is_ in COMPONENTS.items():
        (container,) = one_of(manifests, "Deployment", f"-{component}")["spec"]["template"]["spec"]["containers"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert kind in container[probe]
            address = container[probe]["grpc"]["port"] if kind == "grpc" else container[probe]["exec"]["command"][-1]
            assert str(address).endswith(str(is_["port"]))
            assert container[probe]["timeoutSeconds"] >= 10


@pytest.mark.parametrize(
    ("version", "budget", "scaler"),
    [
        ("1.20", "policy/v1beta1", "autoscaling/v2beta2"),
        ("1.21", "policy/v1", "autoscaling/v2beta2"),
        ("1.23", "policy/v1", "autoscaling/v2"),
        ("1.37", "policy/v1", "autoscaling/v2"),
    ],
)
def test_interfaces_are_those_of_the_version(version: str, budget: str, scaler: str) -> None:
    manifests = objects("large", version)
    assert {one["apiVersion"] for one in named(manifests, "PodDisruptionBudget").values()} == {budget}
    assert {one["apiVersion"] for one in named(manifests, "HorizontalPodAutoscaler").values()} == {scaler}


@pytest.mark.parametrize(("drain", "grace"), [(5, 20), (0, 0), (60, 600)])
def test_a_pod_gets_longer_than_it_drains(drain: int, grace: int) -> None:
    more = (f"--set=drainSeconds={drain},shutdownGraceSeconds={grace}",)
    manifests = objects("trial", NEWEST, more=more)
    for component in COMPONENTS:
        spec = one_of(manifests, "Deployment", f"-{component}")["spec"]["template"]["spec"]
        assert spec["terminationGracePeriodSeconds"] > drain + grace
        assert data_of(manifests, component)["UNDERCROFT_DRAIN_S"] == str(drain)


def test_a_volume_of_one_node_keeps_its_pods_together() -> None:
    manifests = objects("small", NEWEST)
    labels = {pod: each for pod, each, _ in templates(manifests)}
    for component, is_ in COMPONENTS.items():
        pod = f"Deployment/{RELEASE}-undercroft-{component}"
        spec = named(manifests, "Deployment")[f"{RELEASE}-undercroft-{component}"]["spec"]["template"]["spec"]
        volumes = [name for name, held in (("sidecars", is_["sidecars"] != "none"), ("models", is_["models"])) if held]
        terms = (
            spec.get("affinity", {}).get("podAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
        )
        assert [set(term["labelSelector"]["matchLabels"]) for term in terms] == [
            {f"undercroft/{volume}-volume"} for volume in sorted(volumes)
        ]
        for term in terms:
            assert term["topologyKey"] == "kubernetes.io/hostname"
            # The first pod of all finds no other: Kubernetes lets it pass because it matches its own term.
            assert matches(term["labelSelector"], labels[pod])
        # Spreading contradicts it, and a budget would keep the node from being drained.
        assert ("topologySpreadConstraints" in spec) is not bool(volumes)
        assert (f"{RELEASE}-undercroft-{component}" in named(manifests, "PodDisruptionBudget")) is not bool(volumes)


def test_a_volume_of_many_nodes_lets_pods_spread() -> None:
    manifests = objects("cloudnativepg", NEWEST)
    for component in COMPONENTS:
        spec = one_of(manifests, "Deployment", f"-{component}")["spec"]["template"]["spec"]
        assert "affinity" not in spec
        assert {each["whenUnsatisfiable"] for each in spec["topologySpreadConstraints"]} == {"ScheduleAnyway"}
    assert len(named(manifests, "PodDisruptionBudget")) == len(COMPONENTS)


def test_own_affinity_is_kept_beside_that_of_volumes() -> None:
    term = "podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
    more = (
        f"--set=search.affinity.{term}.topologyKey=zone,search.affinity.{term}.labelSelector.matchLabels.a=b",
        "--set=search.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
    )
    spec = one_of(objects("trial", NEWEST, more=more), "Deployment", "-search")["spec"]["template"]["spec"]
    terms = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["topologyKey"] for term in terms] == ["zone", "kubernetes.io/hostname"]
    assert "nodeAffinity" in spec["affinity"]


def test_search_only_reads_the_shared_volume_and_nobody_writes_models() -> None:
    for name in ("trial", "cloudnativepg", "large"):
        manifests = objects(name, NEWEST)
        for component, is_ in COMPONENTS.items():
            (container,) = one_of(manifests, "Deployment", f"-{component}")["spec"]["template"]["spec"]["containers"]
            read_only = {mount["name"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
            assert read_only.get("sidecars") == {"none": None, "read": True, "written": False}[is_["sidecars"]]
            assert read_only.get("models") == (True if is_["models"] else None)


def checksums(*more: str) -> dict[str, str]:
    manifests = objects("trial", NEWEST, more=more)
    found = {}
    for component in COMPONENTS:
        pod = one_of(manifests, "Deployment", f"-{component}")["spec"]["template"]
        found[component] = pod["metadata"]["annotations"]["checksum/config"]
    return found


@pytest.mark.parametrize(
    ("change", "restarted"),
    [
        ("search.config.lease_s=90", {"search"}),
        ("search.presets.a\\.yaml=steps", {"search"}),
        ("ingest.pipeline=version: 1", {"ingest"}),
        ("logLevel=DEBUG", set(COMPONENTS)),
        ("ingest.replicas=2", set()),
    ],
)
def test_changed_settings_restart_those_that_read_them(change: str, restarted: set[str]) -> None:
    before, after = checksums(), checksums(f"--set={change}")
    assert {component for component in COMPONENTS if before[component] != after[component]} == restarted


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("name", ["trial", "managed", "large"])
def test_services_read_the_settings_that_are_rendered(
    name: str, component: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_of(objects(name, NEWEST), component)
    for key in data:
        monkeypatch.setenv(key, data[key])
    monkeypatch.setenv("UNDERCROFT_DATABASE_URL", "postgresql://")
    settings = SETTINGS[component]()
    known = {f"UNDERCROFT_{field.upper()}" for field in type(settings).model_fields}
    assert {key for key in data if key.startswith("UNDERCROFT_")} <= known
    assert settings.listen == f"[::]:{COMPONENTS[component]['port']}"
    for other in COMPONENTS[component]["calls"]:
        target = getattr(settings, f"{other}_target")
        scheme, _, address = target.partition(":///")
        host, _, port = address.partition(":")
        service = named(objects(name, NEWEST), "Service")[host]
        assert scheme == "dns"
        assert service["spec"]["clusterIP"] == "None"
        assert int(port) in {each["port"] for each in service["spec"]["ports"]}


def test_numbers_stay_whole() -> None:
    data = data_of(objects("large", NEWEST), "search")
    assert data["UNDERCROFT_QUERY_CACHE_BYTES"] == "134217728"
    assert (
        data_of(objects("large", NEWEST, more=("--set-json=search.config.lease_s=2.5",)), "search")[
            "UNDERCROFT_LEASE_S"
        ]
        == "2.5"
    )


def test_files_of_the_example_are_ones_that_the_services_read(tmp_path: Path) -> None:
    manifests = objects("large", NEWEST)
    pipeline = tmp_path / "ingestion.yaml"
    pipeline.write_text(one_of(manifests, "ConfigMap", "-ingest-files")["data"]["ingestion.yaml"], "utf-8")
    assert load_pipeline(pipeline).discovery.caps
    presets = tmp_path / "presets"
    presets.mkdir()
    for name, text in one_of(manifests, "ConfigMap", "-search-files")["data"].items():
        (presets / name).write_text(text, "utf-8")
    assert "mine" in load_presets(presets)


@pytest.mark.parametrize(("name", "appended"), [("large", True), ("old-account", False)])
def test_own_authorities_are_trusted_beside_those_of_the_image_or_alone(name: str, appended: bool) -> None:
    manifests = objects(name, NEWEST)
    for component in COMPONENTS:
        spec = one_of(manifests, "Deployment", f"-{component}")["spec"]["template"]["spec"]
        mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
        makers = [each for each in spec.get("initContainers", []) if each["name"] == "authorities"]
        if component != "ingest":
            assert "/etc/undercroft/ca" not in mounts
            continue
        assert data_of(manifests, component)["SSL_CERT_FILE"] == "/etc/undercroft/ca/ca.crt"
        assert mounts["/etc/undercroft/ca"] == ("ca" if appended else "own-ca")
        assert [each["args"][1:] for each in makers] == (
            [["/ca/ca.crt", "/etc/ssl/certs/ca-certificates.crt", "/own/ca.crt"]] if appended else []
        )


def hook_of(one: Manifest) -> str:
    return str(one["metadata"].get("annotations", {}).get("helm.sh/hook", ""))


def references(spec: dict[str, Any]) -> set[tuple[str, str]]:
    """All objects that a pod names, but those that may be missing."""
    found = {("ServiceAccount", spec["serviceAccountName"])} - {("ServiceAccount", "default")}
    for volume in spec["volumes"]:
        if "configMap" in volume:
            found.add(("ConfigMap", volume["configMap"]["name"]))
        if "secret" in volume:
            found.add(("Secret", volume["secret"]["secretName"]))
        if "persistentVolumeClaim" in volume:
            found.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
    for container in containers(spec):
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                found.add(("ConfigMap", source["configMapRef"]["name"]))
        for variable in container.get("env", []):
            if "valueFrom" in variable:
                found.add(("Secret", variable["valueFrom"]["secretKeyRef"]["name"]))
    return found


@pytest.mark.parametrize("more", [(), ("--is-upgrade",)], ids=["install", "upgrade"])
@pytest.mark.parametrize("name", NAMES)
def test_pods_name_nothing_that_is_not_there(name: str, more: tuple[str, ...]) -> None:
    manifests = objects(name, NEWEST, more=more)
    case = next(case for case in CASES if case.name == name)
    outside = "".join(file.read_text("utf-8") for file in case.files) + " ".join(case.values.values())
    made = {(one["kind"], one["metadata"]["name"]) for one in manifests}
    hooks = {(one["kind"], one["metadata"]["name"]) for one in manifests if hook_of(one).startswith("pre-")}
    for one in manifests:
        spec = one.get("spec", {}).get("template", {}).get("spec") or (one["spec"] if one["kind"] == "Pod" else None)
        if spec is None:
            continue
        # What runs before an install can't name what comes with it.
        there = hooks if "pre-install" in hook_of(one) else made
        missing = {each for each in references(spec) if each not in there and not re.search(rf"\b{each[1]}\b", outside)}
        assert not missing, one["metadata"]["name"]


def test_an_external_database_is_migrated_before_anything_else() -> None:
    for name in ("cloudnativepg", "managed", "large"):
        job = one_of(objects(name, NEWEST), "Job", "-migrate")
        assert hook_of(job) == "pre-install,pre-upgrade"
        weight = "helm.sh/hook-weight"
        for kind in ("ServiceAccount", "NetworkPolicy"):
            needed = one_of(objects(name, NEWEST), kind, "-migrate")
            assert hook_of(needed) == hook_of(job)
            assert int(needed["metadata"]["annotations"][weight]) < int(job["metadata"]["annotations"][weight])


def test_a_database_of_the_release_is_migrated_with_it_and_later_before_it() -> None:
    (job,) = named(objects("trial", NEWEST), "Job").values()
    assert hook_of(job) == ""
    for component, is_ in COMPONENTS.items():
        spec = one_of(objects("trial", NEWEST), "Deployment", f"-{component}")["spec"]["template"]["spec"]
        assert [each["name"] for each in spec.get("initContainers", [])] == (["schema"] if is_["database"] else [])
    (job,) = named(objects("trial", NEWEST, more=("--is-upgrade",)), "Job").values()
    assert hook_of(job) == "pre-upgrade"
    # A finished Job can't be changed, so another image must be another Job.
    (other,) = named(objects("trial", NEWEST, more=("--set=image.tag=9.9.9",)), "Job").values()
    assert other["metadata"]["name"] != next(iter(named(objects("trial", NEWEST), "Job")))


def test_migrations_take_their_own_connection() -> None:
    (container,) = one_of(objects("managed", NEWEST), "Job", "-migrate")["spec"]["template"]["spec"]["containers"]
    url = next(each for each in container["env"] if each["name"] == "UNDERCROFT_DATABASE_URL")
    assert url["valueFrom"]["secretKeyRef"] == {"name": "undercroft-database-owner", "key": "uri"}
    assert {"PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY"} <= {each["name"] for each in container["env"]}
    for kind, name, port, certificate in (
        ("Job", "-migrate", 5432, "undercroft-owner-client"),
        ("Deployment", "-search", 6432, "undercroft-client"),
    ):
        spec = one_of(objects("managed", NEWEST), kind, name)["spec"]["template"]["spec"]
        (client,) = (each["secret"]["secretName"] for each in spec["volumes"] if each["name"] == "database-client")
        assert client == certificate
        policy = one_of(objects("managed", NEWEST), "NetworkPolicy", name)
        to_database = [each for each in policy["spec"]["egress"] if {"ipBlock": {"cidr": "10.1.2.3/32"}} in each["to"]]
        assert [each["ports"][0]["port"] for each in to_database] == [port]


def test_jobs_and_tests_go_where_they_are_told() -> None:
    more = tuple(
        f"--set={name}.{value}"
        for name in ("migrations", "tests")
        for value in ("nodeSelector.disk=fast", "tolerations[0].operator=Exists", "podLabels.mesh=off")
    )
    told = [
        (labels, spec)
        for pod, labels, spec in templates(objects("managed", NEWEST, more=more))
        if labels["app.kubernetes.io/component"] in ("migrate", "test")
    ]
    assert len(told) == 2
    for labels, spec in told:
        assert labels["mesh"] == "off"
        assert (spec["nodeSelector"], spec["tolerations"]) == ({"disk": "fast"}, [{"operator": "Exists"}])


def test_each_service_has_callers_of_its_own() -> None:
    manifests = objects("large", NEWEST)
    for component, label in (("embed", ""), ("ingest", "builds"), ("search", "agents"), ("decisions", "agents")):
        peers = one_of(manifests, "NetworkPolicy", f"-{component}")["spec"]["ingress"][0]["from"]
        outside = [peer["namespaceSelector"]["matchLabels"] for peer in peers if "namespaceSelector" in peer]
        assert outside == ([{label: "true"}] if label else [])


def test_what_was_made_once_outlives_the_release() -> None:
    manifests = objects("trial", NEWEST)
    secrets = named(manifests, "Secret")
    assert len(secrets) == 2
    for one in [*secrets.values(), *named(manifests, "PersistentVolumeClaim").values()]:
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    # Rendered without a cluster nothing can be looked up: another random value must be refused, not applied.
    assert all(one["immutable"] is True for one in secrets.values())
    assert named(objects("cloudnativepg", NEWEST), "Secret") == {}


@pytest.mark.parametrize(("version", "kind"), [("1.34", "copy"), ("1.35", "image"), ("1.37", "image")])
def test_models_of_an_image_are_mounted_where_that_can_be_done(version: str, kind: str) -> None:
    manifests = objects("large", version)
    for component in ("embed", "ingest"):
        spec = one_of(manifests, "Deployment", f"-{component}")["spec"]["template"]["spec"]
        volume = next(each for each in spec["volumes"] if each["name"] == "models")
        assert ("image" in volume) is (kind == "image")
        assert ("models" in [each["name"] for each in spec.get("initContainers", [])]) is (kind == "copy")
        assert data_of(manifests, component)["UNDERCROFT_MODELS_DIR"] == (
            "/models/models" if kind == "image" else "/models"
        )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "The database is not named"),
        ({"database.existingSecret": "db"}, "networkPolicy.database"),
        ({"postgres.enabled": "true", "database.existingSecret": "db"}, "Two databases"),
        ({"postgres.enabled": "true", "profile": "large"}, "ReadWriteMany"),
        ({"postgres.enabled": "true", "sidecars.accessMode": "ReadWriteOncePod"}, "accessMode"),
        ({"postgres.enabled": "true", "models.source": "image", "models.imagePath": ""}, "models.imagePath"),
        ({"postgres.enabled": "true", "models.source": "image", "models.imageVolume": "always"}, "1.31"),
        (
            {
                "postgres.enabled": "true",
                "models.source": "image",
                "models.imagePath": "m",
                "models.loader.enabled": "true",
            },
            "can't be loaded by hand",
        ),
        (
            {"postgres.enabled": "true", "models.accessMode": "ReadOnlyMany", "models.loader.enabled": "true"},
            "ReadOnlyMany volume",
        ),
        ({"postgres.enabled": "true", "ingest.git.hosts[0]": "git.corp"}, "networkPolicy.git.peers"),
        (
            {"postgres.enabled": "true", "search.topologySpreadConstraints[0].whenUnsatisfiable": "DoNotSchedule"},
            "can't be spread",
        ),
        ({"postgres.enabled": "true", "caBundle.configMap": "a", "caBundle.secret": "b"}, "one of caBundle"),
        ({"postgres.enabled": "true", "image.tag": "latest"}, "The tag latest"),
        ({"postgres.enabled": "true", "images.embed.tag": "latest"}, "The tag latest"),
        ({"postgres.enabled": "true", "networkPolicy.dns.peers": "null"}, "peers"),
        ({"postgres.enabled": "true", "monitoring.serviceMonitor.enabled": "true"}, "networkPolicy.monitoring"),
        ({"postgres.enabled": "true", "search.service.type": "LoadBalancer"}, "networkPolicy.callers.search"),
        ({"postgres.enabled": "true", "migrations.databaseWaitSeconds": "240"}, "time after waiting"),
        ({"postgres.enabled": "true", "commonLabels.app\\.kubernetes\\.io/name": "x"}, "the chart's own"),
        ({"postgres.enabled": "true", "search.podLabels.app\\.kubernetes\\.io/component": "x"}, "the chart's own"),
        ({"postgres.enabled": "true", "fullnameOverride": "9x"}, "fullnameOverride"),
        ({"postgres.enabled": "true", "image.registry": "https://registry.corp"}, "registry"),
        ({"postgres.enabled": "true", "images.embed.digest": "sha256:12"}, "digest"),
        ({"postgres.enabled": "true", "image.registry": ""}, "registry"),
        ({"postgres.enabled": "true", "serach.replicas": "2"}, "serach"),
        ({"postgres.enabled": "true", "search.config.listen": "x"}, "listen"),
        (
            {
                "postgres.enabled": "true",
                "search.autoscaling.enabled": "true",
                "search.autoscaling.minReplicas": "9",
            },
            "above maxReplicas",
        ),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
@pytest.mark.parametrize("helm", HELMS)
def test_what_cannot_work_is_refused_in_words(values: dict[str, str], said: str, helm: str) -> None:
    with pytest.raises(Refused, match=re.escape(said)):
        render(Case("refused", values=values), "1.30", helm)


def test_a_kubernetes_before_1_20_is_refused() -> None:
    with pytest.raises(Refused, match="kubeVersion"):
        render(Case("old", values={"postgres.enabled": "true"}), "1.19")


def test_long_names_stay_names() -> None:
    """A DNS label has 63 characters, suffixes of all kinds included."""
    case = Case("long", values={"postgres.enabled": "true", "fullnameOverride": "a" * 60})
    for one in yaml.safe_load_all(render(case, OLDEST)):
        if one:
            assert len(one["metadata"]["name"]) <= 63
    first, second = (
        Case("alike", values={"postgres.enabled": "true", "fullnameOverride": f"{'a' * 50}{end}"}) for end in "bc"
    )
    names = [
        {one["metadata"]["name"] for one in yaml.safe_load_all(render(case, OLDEST)) if one} for case in (first, second)
    ]
    assert not names[0] & names[1]


def test_everything_is_in_the_namespace_of_the_release() -> None:
    for name in NAMES:
        assert {one["metadata"]["namespace"] for one in objects(name, NEWEST)} == {NAMESPACE}


def test_labels_and_annotations_of_ones_own_reach_everything() -> None:
    for one in objects("large", NEWEST):
        assert one["metadata"]["labels"]["cost-centre"] == "search"
        if one["kind"] not in ("ServiceMonitor", "ConfigMap"):
            assert one["metadata"]["annotations"]["owner"] == "platform", one["metadata"]["name"]
    for pod, labels, _ in templates(objects("large", NEWEST)):
        assert labels["cost-centre"] == "search", pod
