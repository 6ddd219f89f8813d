"""Run ``ops/compose/undercroft`` for real: ``python -m ops.compose.check [LAYOUTS]``, as root or rootless.

Load, model, up, index, search, pause, kill, save and restore, purge; with images of this checkout. Refuses where podman
has an appliance already, and leaves nothing behind. Takes two or three minutes.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "ops" / "compose" / "undercroft"
IMAGES = "localhost/undercroft-check"
PORTS = {"ingest": 50051, "embed": 50052, "search": 50053, "decisions": 50054}
OURS = (
    ("pod", "ls", "--format", "{{.Name}}"),
    ("volume", "ls", "--format", "{{.Name}}"),
    ("secret", "ls", "--format", "{{.Name}}"),
    ("network", "ls", "--format", "{{.Name}}"),
)
NAMES = ("undercroft", *(f"undercroft-{name}" for name in ("postgres", "sidecars", "ingest", "search")))
QUESTION, ANSWER = "flux capacitor", "flux.py"


def main() -> None:
    """Run all steps; the first one that fails ends with its words."""
    parser = argparse.ArgumentParser(prog="python -m ops.compose.check", description=__doc__.splitlines()[0])
    parser.add_argument("layouts", nargs="?", type=Path, default=ROOT / ".cache" / "images" / "oci")
    layouts = parser.parse_args().layouts.resolve()
    if left := there():
        sys.exit(f"podman has {', '.join(left)} already: run this where no appliance is, or 'undercroft purge' first")
    with tempfile.TemporaryDirectory(prefix="undercroft-compose-") as scratch:
        check = Check(Path(scratch))
        try:
            check.run(layouts)
        finally:
            check.script("purge", "--yes", fails=None)
            # A filter by name brings in all other names of the same images.
            for tag in podman("images", "--format", "{{.Repository}}:{{.Tag}}").split():
                if tag.startswith(f"{IMAGES}/"):
                    podman("untag", tag, tag)
    if left := there():
        sys.exit(f"purge left {', '.join(left)}")
    print("compose: all steps done")


def podman(*arguments: str) -> str:
    """Run podman; return what it prints."""
    return subprocess.run(["podman", *arguments], check=True, capture_output=True, text=True).stdout


def there() -> list[str]:
    """Name what podman has of an appliance."""
    found = (f"{command[0]} {name}" for command in OURS for name in podman(*command).split())
    return [one for one in found if one.split()[1] in NAMES]


class Check:
    """One appliance of podman's, with folders of its own."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.state = scratch / "state"
        self.sources = scratch / 'R&D | "code"'
        (scratch / "compose.env").touch()
        self.environment: dict[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.startswith("UNDERCROFT_")},
            "CONFIG": str(scratch / "compose.env"),
            "UNDERCROFT_STATE": str(self.state),
            "UNDERCROFT_IMAGES": IMAGES,
        }

    def run(self, layouts: Path) -> None:
        """Run all steps in their order."""
        self.bring_in(layouts)
        self.refuse()
        self.serve()
        self.survive()
        self.restore()

    def bring_in(self, layouts: Path) -> None:
        (self.scratch / "empty").mkdir()
        self.script("load", str(self.scratch / "empty"), fails=True, says="no OCI layouts")
        self.script("load", str(layouts), says=f"{IMAGES}/embed:")
        before = os.umask(0o077)
        try:
            self.script("model", says="all-minilm-l6-v2")
        finally:
            os.umask(before)

    def refuse(self) -> None:
        self.script("status", fails=True, says="not up")
        self.script("logs", "embed", fails=True, says="no container")
        absent = self.scratch / "absent"
        self.script("up", fails=True, says="no folder", UNDERCROFT_SOURCES=str(absent))
        assert not absent.exists()
        self.script("up", fails=True, says="no address of this host", UNDERCROFT_ADDRESS="192.0.2.1")
        with (self.state / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.script("up", fails=True, says="at work")
        assert there() == []

    def serve(self) -> None:
        self.sources.mkdir()
        (self.sources / ANSWER).write_text(
            'def charge() -> int:\n    """Charge the flux capacitor."""\n    return 88\n'
        )
        self.script("up", says="search serves", UNDERCROFT_SOURCES=str(self.sources))
        self.script("status", says="decisions serves")
        self.cli("status", says="serving")
        self.cli("models", "list", says="all-minilm-l6-v2")
        self.cli("index", str(self.sources), "--project", "check", says="1 made via all-minilm-l6-v2")
        self.cli("search", QUESTION, says=ANSWER)
        other = str(self.scratch / "other")
        for command in (("up",), ("down",), ("purge", "--yes")):
            self.script(*command, fails=True, says=f"another folder of state, {self.state}", UNDERCROFT_STATE=other)
        podman("pod", "pause", "undercroft")
        self.script("up", fails=True, says="the pod is paused")
        podman("unpause", *podman("ps", "-aq", "--filter", "pod=undercroft", "--filter", "status=paused").split())
        self.script("status", says="decisions serves")
        # What was named once holds.
        self.script("up", says=str(self.sources))
        self.cli("index", "--project", "check", says="nothing changed")

    def survive(self) -> None:
        os.kill(pid_of("undercroft-search"), signal.SIGKILL)
        wait("search comes back", lambda: self.script("status", fails=None) == 0)
        self.cli("search", QUESTION, says=ANSWER)
        models = self.state / "models"
        models.chmod(0o700)
        self.cli("models", "list", fails=True, says="can't read its models folder")
        models.chmod(0o755)
        self.cli("models", "list", says="all-minilm-l6-v2")
        infra = podman("pod", "inspect", "--format", "{{.InfraContainerID}}", "undercroft").strip()
        os.kill(pid_of(infra), signal.SIGKILL)
        wait("the ports are gone", lambda: self.script("status", fails=None) == 1)
        self.script("status", fails=True, says="does not publish the port")
        self.script("up", says="search serves")

    def restore(self) -> None:
        self.script("down")
        saved = self.scratch / "postgres.tar"
        podman("volume", "export", "--output", str(saved), "undercroft-postgres")
        shutil.copytree(self.state, self.scratch / "saved")
        self.script("purge", fails=True, says="--yes")
        backup = podman("create", "--volume", "undercroft-sidecars:/data", f"{IMAGES}/postgres:0.1.0").strip()
        self.script("purge", "--yes", fails=True, says="undercroft-sidecars is used by a container")
        podman("rm", backup)
        assert "volume undercroft-postgres" in there()
        self.script("purge", "--yes")
        assert there() == []
        shutil.rmtree(self.state)
        shutil.copytree(self.scratch / "saved", self.state)
        podman("volume", "create", "undercroft-postgres")
        podman("volume", "import", "undercroft-postgres", str(saved))
        # Of an appliance that was here before.
        (self.scratch / "old").write_text("{}")
        podman("secret", "create", "undercroft", str(self.scratch / "old"))
        self.script("up", says="search serves")
        wait("what was saved is found", lambda: self.cli("search", QUESTION, fails=None) == 0)
        self.cli("search", QUESTION, says=ANSWER)

    def script(self, *arguments: str, fails: bool | None = False, says: str = "", **settings: str) -> int:
        """Run the script; return its status. ``fails`` None: either will do."""
        return run([str(SCRIPT), *arguments], {**self.environment, **settings}, fails, says)

    def cli(self, *arguments: str, fails: bool | None = False, says: str = "") -> int:
        """Run the ``undercroft`` command against the published ports; return its status."""
        targets = {f"UNDERCROFT_{name.upper()}_TARGET": f"127.0.0.1:{port}" for name, port in PORTS.items()}
        command = [sys.executable, "-c", "from services.cli import main; main()", *arguments]
        return run(command, {**self.environment, **targets}, fails, says)


def run(command: list[str], environment: Mapping[str, str], fails: bool | None, says: str) -> int:
    """Run a command with nothing on its standard input; end all when it is not as wanted."""
    started = time.monotonic()
    done = subprocess.run(
        command, check=False, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT
    )
    words = done.stdout + done.stderr
    name = " ".join([Path(command[0]).name, *command[1:]]).replace("-c from services.cli import main; main() ", "")
    if (fails is not None and fails != bool(done.returncode)) or says not in words:
        sys.exit(f"{name}: ended with {done.returncode}, wanted {says!r}:\n{words}")
    if fails is not None:
        print(f"{name}: {done.returncode}, {time.monotonic() - started:.1f} s", flush=True)
    return done.returncode


def pid_of(container: str) -> int:
    return int(podman("container", "inspect", "--format", "{{.State.Pid}}", container))


def wait(what: str, is_so: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > end:
            sys.exit(f"after {limit_s:.0f} s it is not so: {what}")
        time.sleep(0.5)
    print(f"{what}: yes", flush=True)


if __name__ == "__main__":
    main()
