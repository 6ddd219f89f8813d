"""The images together where nothing leads out: index real sources, ask, and look who tried to leave.

Every container has a read-only root, a user without a name, no capability, and writes to named volumes and /tmp alone.
Needs root (for the namespace that records), podman, iproute2, nftables, git and openssl.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from ops.images import sinks
from ops.images.building import Workplace
from ops.images.containers import Containers
from ops.images.git_server import CREDENTIALS
from ops.images.images import MODEL, POSTGRES, ROOT
from ops.images.sinks import Sink
from services.core.errors import DataLoss, NotReady

_PROGRAMS = ("podman", "ip", "nft", "git", "openssl")
_READY_S = 120.0
# When the first start of Postgres is killed: while initdb is at work, and after it.
_MOMENTS_S = (0.1, 0.3, 0.5, 0.7, 0.9)
_GIT_PORT, _HTTPS_PORT, _OWN_EMBED_PORT = 9418, 8443, 50062
_QUESTION = "merge the scores of several projects"
_WHY = "why are scores computed again after the search?"
_OUTSIDE = "198.51.100.7"
_LEAVE = f"""
import contextlib, socket
with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.sendto(b"x", ("{_OUTSIDE}", 4433))
with contextlib.suppress(OSError):
    socket.getaddrinfo("outside.example", 443)
"""
# What a container may and may not, told by itself and judged outside.
_LOOK = """
import importlib.util, json, os, pathlib
def writes(folder):
    try:
        path = os.path.join(folder, ".proof")
        open(path, "x").close()
        os.unlink(path)
        return True
    except OSError:
        return False
def folders():
    for root, names, _ in os.walk("/"):
        names[:] = [] if root in ("/proc", "/sys") else names
        yield root
programs = [str(one) for folder in ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin")
            for one in pathlib.Path(folder).glob("*")]
status = {name: value for name, _, value in (line.partition(":") for line in open("/proc/self/status"))}
print(json.dumps({"user": os.getuid(), "group": os.getgid(), "writable": sorted(filter(writes, folders())),
                  "programs": sorted(programs), "capabilities": int(status["CapEff"], 16),
                  "uncompiled": [str(one) for one in pathlib.Path(os.__file__).parent.rglob("*.py")
                                 if not os.path.exists(importlib.util.cache_from_source(one))]}))
"""
_MAY_RUN = {"/usr/bin/python3", "/usr/bin/python3.11", "/usr/bin/tini-static"}
_ALL_MAY_WRITE = ("/tmp", "/dev/shm", "/dev/mqueue", "/dev/pts")
_MAY_WRITE = {
    "embed": (),
    "ingest": ("/var/lib/undercroft/sidecars", "/var/lib/undercroft/local"),
    "search": ("/var/lib/undercroft/local",),
    "decisions": (),
}


@dataclass
class Report:
    """How long each step took."""

    times_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step and print it."""
        start = time.monotonic()
        yield
        self.times_s[name] = time.monotonic() - start
        print(f"  {self.times_s[name]:6.1f} s  {name}", flush=True)


def prove(place: Workplace, sdist: Path | None) -> None:
    """Run the images, and end well only if they answer and none tried to leave.

    Raises ``DataLoss`` with what was seen instead.
    """
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        raise NotReady(f"{', '.join(missing)} not installed.", remedy="Install them.", reason="PROGRAM_MISSING")
    if os.geteuid() != 0:
        raise NotReady("This proof makes a network namespace.", remedy="Run it as root.", reason="ROOT_NEEDED")
    report = Report()
    with TemporaryDirectory(prefix="undercroft-check-") as folder, sinks.opened() as sink:
        scratch = Path(folder)
        scratch.chmod(0o755)
        with Containers(sink, place.reference) as containers:
            with report.step("the record sees an attempt to leave"):
                _prove_record(containers)
            with report.step("sources: sdist, bundle, repository, git servers"):
                sources = Sources.make(scratch, sdist)
            servers = [sink.start(*command) for command in sources.servers()]
            try:
                targets = _start(containers, scratch, sources, report)
                with report.step("vectors are those of the whole wheel of OpenVINO"):
                    _compare_vectors(sink, place.models, targets["embed"])
                _ask(containers, targets, sources, report)
                if tried := sink.tried():
                    raise DataLoss(f"Something tried to leave: {'; '.join(tried)}.", reason="EGRESS_TRIED")
            finally:
                for server in servers:
                    server.kill()
                    server.wait()
    print(f"nothing tried to leave; {sum(report.times_s.values()):.0f} s in all")


@dataclass(frozen=True, slots=True)
class Sources:
    """What is indexed, all of it in one folder that the containers see under its own path."""

    folder: Path
    sdist: Path

    @classmethod
    def make(cls, scratch: Path, sdist: Path | None) -> Sources:
        """Make a repository of this project's own docs and some of its code, and the sdist where none is given."""
        folder = scratch / "sources"
        work = folder / "work"
        work.mkdir(parents=True)
        _copy(work, "docs/adr", "services/core/lexical")
        git = ("git", "-C", str(work), "-c", "user.name=proof", "-c", "user.email=proof@undercroft.invalid")
        for step in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Proof")):
            subprocess.run([*git, *step], check=True)
        subprocess.run([*git, "bundle", "create", "-q", folder / "proof.bundle", "main"], check=True)
        subprocess.run([*git, "clone", "-q", "--bare", work, folder / "proof.git"], check=True)
        if sdist is None:
            # Of one package: a shared machine takes minutes for all of them.
            part = folder / "part"
            _copy(part, "services/search", "pyproject.toml", "README.md", "LICENSE")
            command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
            subprocess.run(command, cwd=part, check=True, capture_output=True)
            (sdist,) = folder.glob("*.tar.gz")
        certificate = (
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
        )
        names = ("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "ca.pem")
        subprocess.run([*certificate, *names], check=True, capture_output=True)
        (folder / "gitconfig").write_text(f"[http]\n\textraHeader = Authorization: Basic {CREDENTIALS}\n", "utf-8")
        return cls(folder, sdist)

    def servers(self) -> list[tuple[str, ...]]:
        """Return the commands of the git servers."""
        daemon = ("git", "-c", "safe.directory=*", "daemon", "--export-all", "--reuseaddr", "--listen=127.0.0.1")
        folder = str(self.folder)
        files = [folder, f"{folder}/ca.pem", f"{folder}/key.pem", str(_HTTPS_PORT)]
        return [
            (*daemon, f"--port={_GIT_PORT}", f"--base-path={folder}", folder),
            (sys.executable, str(Path(__file__).with_name("git_server.py")), *files),
        ]


def _copy(into: Path, *parts: str) -> None:
    """Copy files and folders of this project to their own places below a folder."""
    for part in parts:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, into / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, into / part)


def _prove_record(containers: Containers) -> None:
    """Prove that the record sees an address and a look-up of a name that a container tries, or it proves nothing."""
    containers.run("decisions", arguments=("-c", _LEAVE))
    tried = containers.sink.tried()
    if not any(_OUTSIDE in one for one in tried) or not any(sinks.RESOLVER in one for one in tried):
        raise DataLoss(f"The record does not see attempts to leave; it has {tried}.")
    containers.sink.forget()


def _start(containers: Containers, scratch: Path, sources: Sources, report: Report) -> dict[str, str]:
    """Start all of the appliance; returns the addresses of the services."""
    password = secrets.token_urlsafe(16)
    secret = scratch / "password"
    secret.write_text(f"{password}\n", "ascii")
    secret.chmod(0o444)
    database = f"--env=UNDERCROFT_DATABASE_URL=postgresql://undercroft:{password}@127.0.0.1:5432/undercroft"
    data, sidecars = containers.volume("postgres"), containers.volume("sidecars")
    with report.step("postgres: a cluster is made, however often it is killed meanwhile, and serves"):
        server = containers.start(
            POSTGRES,
            f"--volume={data}:/var/lib/postgresql/data",
            f"--volume={secret}:/run/secrets/password:ro",
            "--env=POSTGRES_PASSWORD_FILE=/run/secrets/password",
        )
        for moment_s in _MOMENTS_S:
            time.sleep(moment_s)
            containers.kill_and_start(server)
        ready = ("/usr/lib/postgresql/17/bin/pg_isready", "-q", "-h", "127.0.0.1", "-d", "undercroft")
        containers.await_success(server, POSTGRES, _READY_S, *ready)
    with report.step("migrate"):
        containers.run("migrate", database)
    # Mounted whole, so that the folder of models lies below.
    models = [
        f"--mount=type=image,source={containers.reference(MODEL)},destination=/models",
        "--env=UNDERCROFT_MODELS_DIR=/models/models",
    ]
    folder = f"--volume={sources.folder}:{sources.folder}:ro"
    targets = {
        "ingest": "127.0.0.1:50051",
        "embed": "127.0.0.1:50052",
        "search": "127.0.0.1:50053",
        "decisions": "127.0.0.1:50054",
    }
    known = [f"--env=UNDERCROFT_{name.upper()}_TARGET={target}" for name, target in targets.items()]
    shared = f"--volume={sidecars}:/var/lib/undercroft/sidecars"
    ingest_local = f"--volume={containers.volume('ingest')}:/var/lib/undercroft/local"
    search_local = f"--volume={containers.volume('search')}:/var/lib/undercroft/local"
    git = [
        "--env=UNDERCROFT_GIT_HOSTS=127.0.0.1",
        f"--env=UNDERCROFT_GIT_CONFIG_FILE={sources.folder}/gitconfig",
        f"--env=SSL_CERT_FILE={sources.folder}/ca.pem",
    ]
    options = {
        "embed": models,
        "ingest": [database, *models, folder, shared, ingest_local, *known, *git],
        "search": [database, f"{shared}:ro", search_local, *known],
        "decisions": [database, *known],
    }
    names = {}
    with report.step("embed, ingest, search, decisions serve"):
        for image, given in options.items():
            names[image] = containers.start(image, *given)
        for image, name in names.items():
            probe = ("/usr/bin/python3", "-m", "services.core.probe", targets[image])
            containers.await_success(name, image, _READY_S, *probe)
    with report.step("root read-only, no shell, no rights, unnamed users"):
        for image, name in names.items():
            _judge(image, json.loads(containers.inside(name, _LOOK)))
    return targets


def _judge(image: str, seen: dict[str, object]) -> None:
    programs = (
        {str(one) for one in _list(seen["programs"])} - _MAY_RUN - ({"/usr/bin/git"} if image == "ingest" else set())
    )
    allowed = (*_ALL_MAY_WRITE, *_MAY_WRITE[image])
    writable = [one for one in map(str, _list(seen["writable"])) if not one.startswith(allowed)]
    if (
        programs
        or writable
        or seen["capabilities"]
        or seen["group"] != 0
        or not isinstance(seen["user"], int)
        or seen["user"] < 100_000
    ):
        raise DataLoss(f"{image} may do more than it should: programs {sorted(programs)}, writes to {writable}; {seen}")
    if uncompiled := _list(seen["uncompiled"]):
        raise DataLoss(
            f"{image} compiles {len(uncompiled)} modules of Python's library anew at each start: {uncompiled[:3]}"
        )


def _compare_vectors(sink: Sink, models: Path, target: str) -> None:
    """Prove that what the image leaves out of OpenVINO changes no bit of a vector."""
    own = f"127.0.0.1:{_OWN_EMBED_PORT}"
    settings = {"UNDERCROFT_LISTEN": own, "UNDERCROFT_MODELS_DIR": str(models)}
    environment = {**os.environ, **settings, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"}
    server = sink.start(sys.executable, "-m", "services.embed", environment=environment)
    try:
        end = time.monotonic() + _READY_S
        while sink.run(sys.executable, "-m", "services.core.probe", own, environment=environment).returncode:
            if server.poll() is not None or time.monotonic() > end:
                raise NotReady("The embed service of this checkout does not start.", reason="EMBED_NOT_READY")
        command = (sys.executable, "-m", "ops.images.vectors", "all-minilm-l6-v2", own, target)
        done = sink.run(*command, environment=environment)
    finally:
        server.terminate()
        server.wait()
    print(f"           {done.stdout.strip()}", flush=True)
    if done.returncode:
        raise DataLoss(f"Vectors: {done.stderr.strip()[-1000:]}")


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _ask(containers: Containers, targets: dict[str, str], sources: Sources, report: Report) -> None:
    """Index every kind of source, and ask one question of each kind; by the command line, as a person would."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}",
        **{f"UNDERCROFT_{name.upper()}_TARGET": target for name, target in targets.items()},
    }

    def undercroft(*arguments: str) -> str:
        command = (sys.executable, "-m", "services.cli", *arguments)
        done = containers.sink.run(*command, environment=environment)
        if done.returncode:
            logs = "\n".join(containers.log(name)[-1500:] for name in containers.names if "ingest" in name)
            raise DataLoss(f"undercroft {arguments[0]} failed: {done.stdout[-1500:]}{done.stderr[-1500:]}\n{logs}")
        return done.stdout

    places = {
        "sdist": (str(sources.sdist), "an sdist, sent"),
        "bundle": (f"{sources.folder}/proof.bundle", "a git bundle, mounted"),
        "repository": (f"{sources.folder}/proof.git", "a repository of another user, mounted"),
        "server": (f"git://127.0.0.1:{_GIT_PORT}/proof.git", "a git server"),
        "https": (
            f"https://127.0.0.1:{_HTTPS_PORT}/proof.git",
            "a git server over HTTPS with a CA and credentials of its own",
        ),
    }
    for project, (place, what) in places.items():
        with report.step(f"index {what}"):
            said = undercroft("index", place, "--project", project)
        print("           " + said.strip().splitlines()[-1].strip(), flush=True)
    with report.step("three questions"):
        hits = _list(json.loads(undercroft("search", _QUESTION, "-p", "sdist", "--json")).get("hits"))
        reasons = _list(json.loads(undercroft("why", _WHY, "-p", "bundle", "--json")).get("reasons"))
        uses = _list(json.loads(undercroft("refs", "read_state", "-p", "https", "--json")).get("references"))
    legs = {part["leg"] for hit in hits if isinstance(hit, dict) for part in hit.get("parts", ())}
    print(
        f"           {len(hits)} hits by {', '.join(sorted(legs))}; {len(reasons)} reasons; {len(uses)} uses",
        flush=True,
    )
    if not {"dense", "lexical"} <= legs or not reasons or not uses:
        raise DataLoss("An answer is missing.", remedy="See the logs of the services.")
