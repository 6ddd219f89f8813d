"""Install, test, upgrade, fail, roll back, uninstall and reinstall the chart on a real Kubernetes 1.20 with no way out.

``python -m ops.k8s.check``, as root, with the images built: a caller asks all along, and the report says what it saw.
Ends with 1 when a step goes wrong, an answer changes, a call fails in an upgrade, or anything tried to leave.
"""

from __future__ import annotations

import argparse
import sys
import time

from ops.k8s.cluster import NAMESPACE, RELEASE, TOOLS, Cluster

_SERVICES = ("embed", "ingest", "search", "decisions")


def install(cluster: Cluster) -> None:
    """From an empty cluster to services that answer by words and by meaning."""
    with cluster.step("load images"):
        cluster.load_images()
    with cluster.step("install on an empty cluster"):
        cluster.k8s("kubectl", "create", "namespace", NAMESPACE)
        cluster.helm_run(*cluster.release("install", "--set=models.loader.enabled=true"))
    with cluster.step("load a model"):
        cluster.load_model()
    with cluster.step("helm test"):
        cluster.test()


def upgrade(cluster: Cluster) -> None:
    """Upgrades that succeed and that fail, and the way back; callers notice nothing."""
    missing = [f"--set=images.{name}.tag=0.0.0" for name in _SERVICES]
    unmigrated = ["--set=images.migrate.tag=0.0.0", "--set=logLevel=WARNING"]
    with cluster.caller(index=True):
        with cluster.watched("upgrade without the loader"):
            cluster.helm_run(*cluster.release("upgrade"))
        with cluster.watched("upgrade that restarts every pod"):
            cluster.helm_run(*cluster.release("upgrade", "--set=logLevel=DEBUG"))
        with cluster.watched("upgrade to images that are not there"):
            cluster.expect_failure(*cluster.release("upgrade", *missing, timeout="45s"))
        with cluster.watched("rollback"):
            cluster.helm_run("rollback", RELEASE, "--wait", "--timeout=300s")
        with cluster.watched("upgrade whose migration does not run"):
            cluster.expect_failure(*cluster.release("upgrade", *unmigrated, timeout="30s"))
        with cluster.watched("rollback"):
            cluster.helm_run("rollback", RELEASE, "--wait", "--timeout=300s")
    cluster.find_restarts()


def leave_and_return(cluster: Cluster) -> None:
    """Uninstalling leaves what can't be made anew; a release of the same name takes it up."""
    with cluster.step("uninstall"):
        cluster.helm_run("uninstall", RELEASE, "--wait", "--timeout=300s")
        # Helm waits for the Deployments; their pods drain for a while yet.
        selector = f"--selector=app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component notin (test,migrate)"
        cluster.kubectl("wait", "--for=delete", "pod", selector, "--timeout=120s", may_fail=True)
        left = cluster.kubectl("get", "all,configmap,secret,pvc,networkpolicy,pdb,serviceaccount", "-o", "name")
        names = {line for line in left.split() if "undercroft" in line}
        kept = {
            f"persistentvolumeclaim/data-{RELEASE}-undercroft-postgres-0",
            f"persistentvolumeclaim/{RELEASE}-undercroft-models",
            f"persistentvolumeclaim/{RELEASE}-undercroft-sidecars",
            f"secret/{RELEASE}-undercroft-page-tokens",
            f"secret/{RELEASE}-undercroft-postgres",
        }
        print(f"    kept: {', '.join(sorted(names))}", flush=True)
        # What a failed hook leaves is there to be read; the next release removes it. So is the pod of the last test.
        hooks = {line for line in names if "-migrate" in line or line.endswith("-test")}
        if names - hooks != kept:
            cluster.fault(f"left: {sorted(names - hooks - kept)}, missing: {sorted(kept - names)}")
    cluster.helm = "helm4"
    with cluster.step("reinstall on the old volumes"):
        cluster.helm_run(*cluster.release("install"))
    with cluster.caller(index=False):
        with cluster.watched("what was indexed is still there"):
            time.sleep(5)
        with cluster.watched("upgrade that restarts every pod"):
            cluster.helm_run(*cluster.release("upgrade", "--set=logLevel=DEBUG"))
    with cluster.step("helm test"):
        cluster.test()


def bring_a_database(cluster: Cluster) -> None:
    """A second release, in the first one's Postgres: its database is there before it, so its migration is a hook."""
    postgres = f"{RELEASE}-undercroft-postgres"

    def sql(database: str, statement: str) -> None:
        command = ("psql", "-h", "/tmp", "-U", "undercroft", "-d", database, "-c", statement)
        cluster.kubectl("exec", f"statefulset/{postgres}", "--", *command)

    with cluster.step("a second release with a database that is there before it, and models of an image"):
        sql("undercroft", "CREATE ROLE other LOGIN PASSWORD 'p@ss/word'")
        sql("undercroft", "GRANT undercroft TO other")
        sql("undercroft", "CREATE DATABASE other OWNER other")
        for extension in ("vector", "pg_trgm"):
            sql("other", f"CREATE EXTENSION IF NOT EXISTS {extension}")
        cluster.kubectl(
            "create", "secret", "generic", "other", "--from-literal=username=other", "--from-literal=password=p@ss/word"
        )
        values = {
            "postgres.enabled": "false",
            "database.existingSecret": "other",
            "database.host": postgres,
            "database.name": "other",
            "networkPolicy.database[0].podSelector.matchLabels.app": "postgres",
            "models.source": "image",
        }
        given = (f"--set={key}={value}" for key, value in values.items())
        cluster.helm_run(*cluster.release("install", *given, name="other"))
        cluster.test("other")
        cluster.helm_run("uninstall", "other", "--wait")


def run(cluster: Cluster) -> None:
    """All steps."""
    for steps in (install, upgrade, leave_and_return, bring_a_database):
        steps(cluster)
    code, text = cluster.k8s("egress", may_fail=True)
    print("== what tried to leave", flush=True)
    print("".join(f"    {line}\n" for line in text.splitlines()) or "    nothing", flush=True)
    if code:
        cluster.fault("something tried to leave")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--registry", default="localhost", help="registry, and path in it, of the local images")
    parser.add_argument("--tag", default="0.1.0", help="their tag")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    arguments = parser.parse_args()
    out = TOOLS / "caller.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    cluster = Cluster(arguments.registry, arguments.tag, out)
    start = time.time()
    cluster.k8s("up")
    try:
        run(cluster)
    except SystemExit:
        print(cluster.k8s("kubectl", "get", "pods,events", "-A", may_fail=True)[1][-6000:])
        raise
    finally:
        if not arguments.keep:
            cluster.k8s("down", may_fail=True)
    if cluster.faults:
        sys.exit(f"{len(cluster.faults)} faults")
    print(f"all well after {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
