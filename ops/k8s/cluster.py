"""The cluster of a check: what runs on it, and what a caller of it saw."""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "ops" / "k8s" / "k8s"
CHART = ROOT / "helm" / "undercroft"
TOOLS = ROOT / ".cache" / "chart"
MODEL = "all-minilm-l6-v2"
RELEASE, NAMESPACE = "rel", "undercroft"
IMAGES = ("embed", "ingest", "search", "decisions", "migrate", "postgres", "demo-model")
# Into /models of the loader, from a tar on standard input: its image has no tar and no shell.
_UNTAR = "import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|*').extractall('/models')"


@dataclass
class Cluster:
    """One run: the steps with their times, and what was wrong."""

    prefix: str
    version: str
    out: Path
    helm: str = "helm3"
    faults: list[str] = field(default_factory=list)

    def k8s(self, *arguments: str, data: bytes | None = None, may_fail: bool = False) -> tuple[int, str]:
        """Run ops/k8s/k8s; return its exit code and output."""
        done = subprocess.run(
            [str(K8S), *arguments],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HELM": str(TOOLS / self.helm)},
            check=False,
        )
        text = done.stdout.decode("utf-8", "replace")
        if done.returncode and not may_fail:
            raise SystemExit(f"k8s {' '.join(arguments)} ended with {done.returncode}:\n{text}")
        return done.returncode, text

    def kubectl(self, *arguments: str, data: bytes | None = None, may_fail: bool = False) -> str:
        return self.k8s("kubectl", f"--namespace={NAMESPACE}", *arguments, data=data, may_fail=may_fail)[1]

    def helm_run(self, *arguments: str, may_fail: bool = False) -> tuple[int, str]:
        return self.k8s("helm", arguments[0], f"--namespace={NAMESPACE}", *arguments[1:], may_fail=may_fail)

    def release(self, action: str, *values: str, name: str = RELEASE, timeout: str = "300s") -> list[str]:
        """Return the arguments that install or upgrade a release."""
        image = f"--set=image.registry={self.prefix},image.tag={self.version}"
        return [
            action,
            name,
            str(CHART),
            f"--values={ROOT}/ops/k8s/values.yaml",
            image,
            "--wait",
            f"--timeout={timeout}",
            *values,
        ]

    def fault(self, text: str) -> None:
        self.faults.append(text)
        print(f"    FAULT {text}", flush=True)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.time()
        print(f"== {name} ({self.helm})", flush=True)
        yield
        print(f"    {time.time() - start:.1f} s", flush=True)

    def saw(self, since: float) -> None:
        """Tell what the caller saw since then."""
        time.sleep(1)
        lines = [json.loads(line) for line in self.out.read_text("utf-8").splitlines()]
        first = {line["kind"]: line["answer"] for line in reversed(lines) if line["code"] == "OK"}
        seen = [line for line in lines if line["start"] >= since]
        failed = collections.Counter(line["code"][:120] for line in seen if line["code"] != "OK")
        good = [since, *(line["start"] + line["seconds"] for line in seen if line["code"] == "OK"), time.time()]
        gap = max(later - earlier for earlier, later in itertools.pairwise(good))
        other = [line for line in seen if line["code"] == "OK" and line["answer"] != first[line["kind"]]]
        slowest = max((line["seconds"] for line in seen), default=0.0)
        print(
            f"    the caller asked {len(seen)} times: {sum(failed.values())} failed, {len(other)} other answers, "
            f"slowest {slowest:.2f} s, longest time without an answer {gap:.2f} s",
            flush=True,
        )
        said = collections.Counter(line["degraded"] for line in other if line["degraded"])
        for text, count in (failed + said).items():
            print(f"    {count} x {text}", flush=True)
        if not seen:
            self.fault("the caller did not ask")
        if failed:
            self.fault(f"{sum(failed.values())} calls failed")
        if other:
            self.fault(
                f"{len(other)} answers changed, the first at {other[0]['start'] - since:.1f} s: {other[0]['kind']}"
            )

    @contextlib.contextmanager
    def watched(self, name: str) -> Iterator[None]:
        """Do a step, then tell what the caller saw of it."""
        start = time.time()
        with self.step(name):
            yield
        self.saw(start)

    def expect_failure(self, *arguments: str) -> None:
        code, text = self.helm_run(*arguments, may_fail=True)
        if not code:
            self.fault(f"helm {arguments[0]} succeeds:\n{text}")

    @contextlib.contextmanager
    def caller(self, *, index: bool) -> Iterator[None]:
        """Have a caller ask while the block runs, from the node, by the names of the headless services."""
        arguments = [str(K8S), "enter", sys.executable, "-m", "ops.k8s.caller", RELEASE, NAMESPACE, str(self.out)]
        process = subprocess.Popen(
            [*arguments, *(["--index"] if index else [])],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/proto"},
        )
        try:
            until = time.time() + 300
            size = self.out.stat().st_size if self.out.exists() else 0
            while not self.out.exists() or self.out.stat().st_size == size:
                if process.poll() is not None or time.time() > until:
                    raise SystemExit("the caller does not ask")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait(30)

    def load_images(self) -> None:
        for name in IMAGES:
            reference = f"{self.prefix}/undercroft/{name}:{self.version}"
            saved = subprocess.run(
                ["podman", "save", "--quiet", "--format=oci-archive", reference], stdout=subprocess.PIPE, check=False
            )
            if saved.returncode:
                raise SystemExit(f"there is no image {reference}: run `make images`")
            self.k8s("load", "-", data=saved.stdout)
            print(f"    {name} {len(saved.stdout) / 1e6:.0f} MB", flush=True)

    def load_model(self) -> None:
        tar = subprocess.run(
            ["tar", "-C", str(ROOT / ".cache/models"), "-ch", MODEL], stdout=subprocess.PIPE, check=True
        ).stdout
        loader = f"deploy/{RELEASE}-undercroft-loader"
        self.kubectl("exec", "-i", loader, "--", "python3", "-c", _UNTAR, data=tar)

    def test(self, name: str = RELEASE) -> None:
        code, text = self.helm_run("test", name, "--logs", "--timeout=300s", may_fail=True)
        print(
            "".join(f"    {line}\n" for line in text.splitlines() if line.startswith(("ok  ", "NOT ", "--  ", "all "))),
            end="",
        )
        if code:
            self.fault(f"helm test fails:\n{text}")

    def find_restarts(self) -> None:
        """Containers that ended by themselves: nothing of an upgrade may come to that."""
        path = "{range .items[*]}{.metadata.name} {.status.containerStatuses[*].restartCount}{'\\n'}{end}"
        for line in self.kubectl("get", "pods", "-o", f"jsonpath={path}").splitlines():
            if any(count not in ("0", "") for count in line.split(" ")[1:]):
                said = self.kubectl("logs", "--previous", "--tail=20", line.split(" ")[0], may_fail=True)
                self.fault(f"restarts: {line}\n{said}")
