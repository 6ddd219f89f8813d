"""The script for one host, with a podman that only remembers: what it asks of podman, and what it refuses before.

`make check-compose` runs it for real.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ops.images.images import ROOT

SCRIPT = ROOT / "ops" / "compose" / "undercroft"
SERVICES = ("embed", "ingest", "search", "decisions")
PORTS = (50051, 50052, 50053, 50054, 9101, 9102, 9103, 9104)
# Keeps what exists as files, and refuses what podman refuses of the calls that the script makes.
PODMAN = r"""#!/usr/bin/env bash
set -eu
shopt -s nullglob
printf '%q ' "$@" >>calls
echo >>calls
exists() { [ -e "$1" ]; }
case "$1 ${2:-}" in
    "version "*) cat version ;;
    "image exists") [ "${3##*:}" = 0.1.0 ] ;;
    "network exists") exists "network-$3" ;;
    "network create")
        case "$(cat version) $*" in
            4.[0-4].*no_default_route*) exit 125 ;;
        esac
        echo "$@" >network-undercroft ;;
    "network inspect")
        if [ "$3" = --format ]; then sed -n 's/.*--label [^ ]*=\([^ ]*\).*/\1/p' "network-$5"; exit; fi
        echo "[{\"subnets\": [{
        \"subnet\": \"10.89.0.0/24\",
        }], \"options\": \"$(cat "network-$3")\"}]" ;;
    "network rm") rm -f "network-$3" ;;
    "secret inspect") exists secret ;;
    "secret create") ! exists secret || { echo "secret name in use" >&2; exit 125; }; cat >secret ;;
    "secret rm") rm -f secret ;;
    "volume exists") exists "volume-$3" ;;
    "volume inspect") exists "volume-$5" || exit 125
        if exists "options-$5"; then echo local 3; else echo local 0; fi ;;
    "volume mount") ! exists "broken-$3" || { echo "Error: special device does not exist" >&2; exit 125; }
        echo "$PWD/volume-$3" ;;
    "volume unmount") ;;
    "volume rm") rm -r "volume-$3" ;;
    "ps -a") ! exists "ps-$4" || cat "ps-$4" ;;
    "unshare "*) "${@:2}" ;;
    "pod exists") exists pod ;;
    "pod stop" | "pod rm") rm -f pod ;;
    "pod inspect") exists pod || exit 125
        case "$4" in *Labels*) cat pod ;; *) echo infra ;; esac ;;
    "create "*) [ $# = 3 ] || { echo "no command or entrypoint provided" >&2; exit 125; }; echo container ;;
    "cp "*) mkdir -m 700 "$3/tiny"; echo "{}" >"$3/tiny/manifest.json"; chmod 600 "$3/tiny/manifest.json" ;;
    "rm container") ;;
    "kube play") sed -n 's/^ *undercroft.state: "\(.*\)"$/\1/p' "${!#}" >pod
        mkdir -p volume-undercroft-postgres/pgdata volume-undercroft-sidecars
        echo 17 >volume-undercroft-postgres/pgdata/PG_VERSION; echo >volume-undercroft-sidecars/made ;;
    "container inspect")
        exists pod || exit 125
        case "$*" in
            *RestartCount*)
                if exists "seen-$3"; then cat "seen-$3"
                elif [ "$3" = undercroft-migrate ]; then echo "exited 0 0 1000 1005"
                else echo "running 0 0 1000 0"; fi ;;
            *) if exists paused; then echo paused; else echo running; fi ;;
        esac ;;
    "exec "*) ! exists "exec-$2" || . "./exec-$2" ;;
    *) echo "nobody expected: $*" >&2; exit 1 ;;
esac
"""
FIND = r"""#!/usr/bin/env bash
for one; do
    shift
    case $one in 65532) set -- "$@" "$(id -u)" ! -name foreign ;; *) set -- "$@" "$one" ;; esac
done
PATH=${PATH#*:}
exec find "$@"
"""


class Host:
    """A host with the script, a podman that remembers, and folders of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "state"
        self.podman = root / "podman"
        (root / "bin").mkdir()
        self.podman.mkdir()
        (self.podman / "version").write_text("4.9.4\n")
        # What is written here stands for what the containers' user writes, but for what is called foreign.
        (root / "bin" / "find").write_text(FIND)
        (root / "bin" / "find").chmod(0o755)
        program = root / "bin" / "podman"
        program.write_text(f"#!/usr/bin/env bash\ncd {shlex.quote(str(self.podman))} && . ./podman.sh\n")
        (self.podman / "podman.sh").write_text(PODMAN)
        program.chmod(0o755)

    def run(self, *arguments: str, umask: int = 0o022, **settings: str) -> tuple[int, str]:
        """Run the script; return its status and what it says."""
        environment = {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "HOME": str(self.root)}
        environment |= {"UNDERCROFT_STATE": str(self.state), **settings}
        done = subprocess.run(
            [str(SCRIPT), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            umask=umask,
        )
        return done.returncode, done.stdout + done.stderr

    def calls(self) -> list[list[str]]:
        """Return what podman was asked since the last time."""
        file = self.podman / "calls"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [shlex.split(line) for line in lines]

    def pod(self) -> dict[str, object]:
        """Return the pod's file as podman was given it."""
        return yaml.safe_load((self.state / "undercroft.yaml").read_text("utf-8"))

    def folders(self) -> dict[str, str]:
        spec = self.pod()["spec"]
        assert isinstance(spec, dict)
        return {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    if shutil.which("flock") is None:
        pytest.skip("there is no flock")
    return Host(tmp_path)


@pytest.fixture
def listeners(host: Host) -> Iterator[str]:
    """An address of loopback on which something answers on every port, as where the pod's ports are published."""
    address = f"127.{os.getpid() % 200 + 10}.{id(host) % 200}.7"
    opened = []
    for port in PORTS:
        one = socket.socket()
        one.bind((address, port))
        one.listen()
        opened.append(one)
    (host.podman / "pod").write_text(f"{host.state}\n")
    host.state.mkdir()
    (host.state / "undercroft.yaml").write_text(f'  - {{hostIP: "{address}"}}\n')
    yield address
    for one in opened:
        one.close()


def test_the_model_comes_out_of_its_image_readable_whatever_the_umask(host: Host) -> None:
    code, said = host.run("model", umask=0o077)
    assert (code, said.strip()) == (0, str(host.state / "models" / "tiny"))
    for path in (host.state / "models", host.state / "models" / "tiny"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert stat.S_IMODE((host.state / "models" / "tiny" / "manifest.json").stat().st_mode) == 0o644
    assert os.listdir(host.state / "models") == ["tiny"]


def test_a_model_that_is_there_stays(host: Host) -> None:
    assert host.run("model")[0] == 0
    code, said = host.run("model")
    assert (code, "tiny is there already" in said) == (0, True), said
    (host.state / "models" / "tiny" / "manifest.json").write_text("of the admin\n")
    code, said = host.run("model")
    assert (code, "move it away" in said) == (1, True), said
    assert (host.state / "models" / "tiny" / "manifest.json").read_text() == "of the admin\n"
    assert os.listdir(host.state / "models") == ["tiny"]


def test_paths_reach_the_pod_as_they_are(host: Host, listeners: str) -> None:
    sources = host.root / 'R&D | "code" \\ @x'
    sources.mkdir()
    code, said = host.run("up", UNDERCROFT_SOURCES=str(sources), UNDERCROFT_ADDRESS=listeners)
    assert code == 0, said
    assert host.folders()["sources"] == str(sources)
    assert f"search serves on {listeners}:50053" in said
    assert "no model" in said


def test_settings_hold_for_later_calls_until_they_are_named_again(host: Host, listeners: str) -> None:
    for name in ("one", "two"):
        (host.root / name).mkdir()
    one, two = str(host.root / "one"), str(host.root / "two")
    assert host.run("up", UNDERCROFT_SOURCES=one, UNDERCROFT_ADDRESS=listeners)[0] == 0
    assert host.run("up")[0] == 0
    assert host.folders()["sources"] == one
    config = host.root / "compose.env"
    config.write_text(f"UNDERCROFT_SOURCES={two}\n")
    assert host.run("up", CONFIG=str(config))[0] == 0
    assert host.folders()["sources"] == two
    # The environment comes before the file, and an empty value is the default.
    assert host.run("up", CONFIG=str(config), UNDERCROFT_SOURCES=one)[0] == 0
    assert host.folders()["sources"] == one
    assert host.run("up", UNDERCROFT_SOURCES="")[0] == 0
    assert host.run("up")[0] == 0
    assert host.folders()["sources"] == str(host.state / "sources")


@pytest.mark.parametrize("text", ["UNDERCROFT_SOURCES=/srv/our code\n", "UNDERCROFT_TAG='0.1.0\n", "X=$UNSET\n"])
def test_a_file_of_settings_that_bash_cannot_read_is_named(host: Host, text: str) -> None:
    config = host.root / "compose.env"
    config.write_text(text)
    code, said = host.run("status", CONFIG=str(config))
    assert (code, f"can't read {config}" in said) == (1, True), said
    assert host.calls() == []


def test_a_file_of_settings_that_is_none_or_of_windows_is_named(host: Host) -> None:
    config = host.root / "compose.env"
    for wrong in (config, host.root):
        code, said = host.run("status", CONFIG=str(wrong))
        assert (code, f"CONFIG names {wrong}, which is no file" in said) == (1, True), said
    config.write_bytes(b"UNDERCROFT_TAG=0.1.0\r\n")
    code, said = host.run("status", CONFIG=str(config))
    assert (code, f"{config} has the line ends of Windows" in said) == (1, True), said
    # Where nobody names it there may be none, and no HOME either.
    code, said = host.run("status", HOME="")
    assert (code, "not up" in said) == (1, True), said


def test_a_full_disk_leaves_no_half_of_a_password(host: Host, listeners: str) -> None:
    program = host.root / "bin" / "cat"
    program.write_text('#!/bin/sh\n[ $# = 0 ] || exec /bin/cat "$@"\nprintf half\nexit 1\n')
    program.chmod(0o755)
    code, said = host.run("up", UNDERCROFT_ADDRESS=listeners)
    assert (code, f"{host.state}/password can't be written: is there room" in said) == (1, True), said
    assert sorted(one.name for one in host.state.glob("*") if "password" in one.name or "new" in one.name) == []
    assert (host.podman / "pod").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"UNDERCROFT_SOURCES": "{root}/typo"}, "no folder"),
        ({"UNDERCROFT_MODELS": "{root}/private"}, "can't read"),
        ({"UNDERCROFT_ADDRESS": "192.0.2.7"}, "no address of this host"),
        ({"UNDERCROFT_ADDRESS": "localhost"}, "no address of this host"),
        ({"UNDERCROFT_ADDRESS": "127.0.0.1 "}, "no address of this host"),
        ({"UNDERCROFT_NETWORK": "none"}, "no network none"),
        ({"UNDERCROFT_TAG": "9.9.9"}, "no image"),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else "",
)
def test_what_runs_goes_on_when_the_next_one_would_not_start(
    host: Host, listeners: str, settings: dict[str, str], words: str
) -> None:
    private = host.root / "private"
    private.mkdir(mode=0o700)
    wanted = {name: value.format(root=host.root) for name, value in settings.items()}
    code, said = host.run("up", **{"UNDERCROFT_ADDRESS": listeners} | wanted)
    assert (code, words in said) == (1, True), said
    assert (host.podman / "pod").exists()
    assert not (host.root / "typo").exists()
    assert not [call for call in host.calls() if call[:1] in (["kube"], ["create"]) or call[1:2] == ["stop"]]


def test_a_port_of_another_program_is_named_and_our_own_is_not(host: Host, listeners: str) -> None:
    assert host.run("up", UNDERCROFT_ADDRESS=listeners)[0] == 0
    (host.podman / "pod").unlink()
    code, said = host.run("up", UNDERCROFT_ADDRESS=listeners)
    assert (code, "is taken" in said) == (1, True), said


def test_a_pod_that_is_paused_is_told(host: Host, listeners: str) -> None:
    (host.podman / "paused").touch()
    (host.podman / "ps-pod=undercroft").write_text("1-infra\nundercroft-embed\n")
    code, said = host.run("up", UNDERCROFT_ADDRESS=listeners)
    assert (code, "'podman unpause 1-infra undercroft-embed'" in said) == (1, True), said
    assert (host.podman / "pod").exists()


def test_a_port_that_swallows_what_is_sent_is_named(host: Host) -> None:
    address = f"127.{os.getpid() % 200 + 10}.{id(host) % 200}.9"
    with socket.socket() as full, socket.socket() as first:
        full.bind((address, PORTS[1]))
        full.listen(0)
        first.connect((address, PORTS[1]))
        code, said = host.run("up", UNDERCROFT_ADDRESS=address)
    assert (code, "50052" in said, "neither answers nor refuses" in said) == (1, True, True), said


def test_status_sees_that_the_database_does_not_answer(host: Host, listeners: str) -> None:
    assert host.run("status")[0] == 0
    (host.podman / "exec-undercroft-postgres").write_text("echo no response; exit 2")
    code, said = host.run("status")
    assert code == 1
    assert "postgres runs and does not answer (no response): 'undercroft logs postgres' tells why" in said


@pytest.mark.parametrize(
    ("file", "text", "code", "words"),
    [
        ("seen-undercroft-postgres", "running 0 1 1790000000 0", 0, "postgres has been restarted once, at 20"),
        ("seen-undercroft-search", "running 0 17 1790000000 0", 0, "search has been restarted 17 times, last at 20"),
        ("seen-undercroft-embed", "paused 0 0 1000 0", 1, "embed is paused: 'podman unpause undercroft-embed'"),
        ("seen-undercroft-postgres", "paused 0 0 1000 0", 1, "'podman unpause undercroft-postgres'"),
        ("seen-undercroft-embed", "exited 137 0 1000 1007", 1, "embed does not run (killed: "),
        ("seen-undercroft-embed", "exited 3 0 1000 1007", 1, "embed does not run (ended with 3)"),
        ("seen-undercroft-embed", "", 1, "embed does not run (there is no container)"),
        ("seen-undercroft-migrate", "exited 1 4 1000 1007", 1, "migrate failed"),
        ("exec-undercroft-embed", "echo one; echo NOT_SERVING >&2; exit 1", 1, "embed does not serve: NOT_SERVING;"),
        (
            "exec-undercroft-embed",
            "exit 137",
            1,
            "embed does not serve: what asks it was killed, as for want of memory",
        ),
        ("exec-undercroft-embed", "exit 1", 1, "embed does not serve: what asks it ended with 1 and said nothing"),
    ],
)
def test_status_tells_what_a_container_is_at_and_what_to_do(
    host: Host, listeners: str, file: str, text: str, code: int, words: str
) -> None:
    (host.podman / file).write_text(text)
    got, said = host.run("status")
    assert (got, words in said) == (code, True), said


def test_status_has_a_line_for_each_that_serves_and_none_about_the_restarts_of_a_first_start(
    host: Host, listeners: str
) -> None:
    # It ended for want of the schema, and came up when migrate had made it.
    (host.podman / "seen-undercroft-ingest").write_text("running 0 3 1006 0")
    code, said = host.run("status")
    assert (code, [line.split()[:2] for line in said.splitlines()]) == (
        0,
        [["postgres", "serves,"], *([name, "serves"] for name in SERVICES)],
    )


def test_status_sees_that_the_ports_are_not_published(host: Host) -> None:
    address = f"127.{os.getpid() % 200 + 10}.{id(host) % 200}.8"
    (host.podman / "pod").touch()
    host.state.mkdir()
    (host.state / "undercroft.yaml").write_text(f'  - {{hostIP: "{address}"}}\n')
    code, said = host.run("status")
    assert (code, said.count("does not publish the port")) == (1, 4), said


@pytest.mark.parametrize(("version", "words"), [("4.3.1", "bar 10.89.0.0/24"), ("4.5.0", ""), ("5.2.2", "")], ids=str)
def test_a_network_that_leads_out_is_told(host: Host, listeners: str, version: str, words: str) -> None:
    (host.podman / "version").write_text(version)
    code, said = host.run("up", UNDERCROFT_ADDRESS=listeners)
    assert code == 0, said
    assert ("podman 4.5" in said) is bool(words)
    assert words in said
    secret = (host.podman / "secret").read_text("utf-8")
    assert ("apiVersion" in secret) is (version != "4.3.1")


def test_nothing_is_deleted_unless_it_is_said(host: Host, listeners: str) -> None:
    assert host.run("up", UNDERCROFT_ADDRESS=listeners)[0] == 0
    code, said = host.run("purge")
    assert (code, "--yes" in said) == (1, True)
    assert (host.podman / "pod").exists()
    assert (host.podman / "volume-undercroft-postgres").exists()
    assert host.run("purge", "--yes")[0] == 0
    assert sorted(one.name for one in host.podman.iterdir()) == ["calls", "podman.sh", "version"]


def test_the_secret_is_made_again_from_the_state_folder(host: Host, listeners: str) -> None:
    assert host.run("up", UNDERCROFT_ADDRESS=listeners)[0] == 0
    made = (host.podman / "secret").read_bytes()
    assert stat.S_IMODE((host.state / "password").stat().st_mode) == 0o600
    (host.podman / "secret").unlink()
    assert host.run("up")[0] == 0
    assert (host.podman / "secret").read_bytes() == made
    # One of another database, as on a host where the folder was restored.
    (host.podman / "secret").write_text("old")
    assert host.run("up")[0] == 0
    assert (host.podman / "secret").read_bytes() == made
    (host.state / "password").unlink()
    assert host.run("up")[0] == 0
    assert (host.podman / "secret").read_bytes() == made
    (host.podman / "secret").unlink()
    code, said = host.run("up")
    assert (code, "bring one of them back" in said) == (1, True)
    assert (host.podman / "pod").exists()


def volume(host: Host, name: str) -> Path:
    """Make a volume beforehand, with options; return its folder."""
    (host.podman / f"options-undercroft-{name}").touch()
    folder = host.podman / f"volume-undercroft-{name}"
    folder.mkdir()
    return folder


def test_a_volume_made_beforehand_is_taken_while_it_has_no_cluster(host: Host, listeners: str) -> None:
    folder = volume(host, "postgres")
    (folder / "lost+found").mkdir()
    assert host.run("up", UNDERCROFT_ADDRESS=listeners)[0] == 0
    (host.podman / "secret").unlink()
    (host.state / "password").unlink()
    code, said = host.run("up")
    assert (code, "bring one of them back" in said) == (1, True), said
    assert (host.podman / "pod").exists()


def test_a_volume_that_cannot_be_mounted_stops_nothing(host: Host, listeners: str) -> None:
    volume(host, "search")
    (host.podman / "broken-undercroft-search").touch()
    code, said = host.run("up", UNDERCROFT_ADDRESS=listeners)
    assert (code, "undercroft-search can't be mounted" in said, "special device" in said) == (1, True, True), said
    assert (host.podman / "pod").exists()
    assert not [call for call in host.calls() if call[:2] in (["kube", "play"], ["pod", "stop"])]


def test_purge_empties_what_was_made_beforehand_and_deletes_the_rest(host: Host, listeners: str) -> None:
    postgres = volume(host, "postgres")
    (postgres / "lost+found").mkdir()
    (postgres / "foreign").write_text("of somebody else\n")
    assert host.run("up", UNDERCROFT_ADDRESS=listeners)[0] == 0
    code, said = host.run("purge", "--yes")
    assert code == 0, said
    assert "undercroft-postgres is emptied but for what others put there (foreign), and kept" in said
    assert "undercroft-sidecars is deleted" in said
    assert not (host.podman / "volume-undercroft-sidecars").exists()
    assert not (postgres / "pgdata").exists()
    assert (postgres / "foreign").exists()


def test_purge_goes_on_past_a_volume_whose_disk_is_gone(host: Host, listeners: str) -> None:
    volume(host, "postgres")
    assert host.run("up", UNDERCROFT_ADDRESS=listeners)[0] == 0
    (host.podman / "broken-undercroft-postgres").touch()
    code, said = host.run("purge", "--yes")
    assert (code, "special device" in said) == (1, True), said
    assert "undercroft-postgres stayed" in said
    assert "'podman volume rm undercroft-postgres'" in said
    assert not (host.podman / "volume-undercroft-sidecars").exists()
    assert not (host.podman / "secret").exists()
    assert not (host.podman / "network-undercroft").exists()


def test_purge_spares_a_network_of_somebody_else(host: Host, listeners: str) -> None:
    (host.podman / "network-undercroft").write_text("create undercroft\n")
    assert host.run("up", UNDERCROFT_ADDRESS=listeners)[0] == 0
    code, said = host.run("purge", "--yes")
    assert (code, "the network undercroft is not of this script, and stays" in said) == (0, True), said
    assert (host.podman / "network-undercroft").exists()


@pytest.mark.parametrize(
    ("label", "words"), [("/srv/other one", "UNDERCROFT_STATE=/srv/other\\ one undercroft down"), ("", "did not make")]
)
def test_a_pod_of_somebody_else_stays(host: Host, listeners: str, label: str, words: str) -> None:
    (host.podman / "pod").write_text(f"{label}\n")
    for command in (("up",), ("down",), ("purge", "--yes")):
        code, said = host.run(*command, UNDERCROFT_ADDRESS=listeners)
        assert (code, words in said) == (1, True), said
    assert (host.podman / "pod").exists()
    assert not [call for call in host.calls() if call[:2] not in (["pod", "exists"], ["pod", "inspect"])]


def test_purge_deletes_nothing_while_a_container_of_somebody_else_uses_a_volume(host: Host, listeners: str) -> None:
    assert host.run("up", UNDERCROFT_ADDRESS=listeners)[0] == 0
    (host.podman / "ps-volume=undercroft-sidecars").write_text("backup\n")
    code, said = host.run("purge", "--yes")
    assert (code, "undercroft-sidecars is used by a container that is not ours, backup" in said) == (1, True), said
    assert (host.podman / "volume-undercroft-postgres").exists()
    assert (host.podman / "secret").exists()


def test_one_at_a_time(host: Host) -> None:
    host.state.mkdir()
    with (host.state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (("up",), ("down",), ("model",), ("purge", "--yes")):
            code, said = host.run(*command)
            assert (code, "at work" in said) == (1, True), said
    assert not [call for call in host.calls() if call[0] != "image"]


def test_what_is_not_there_is_told_in_words(host: Host, tmp_path: Path) -> None:
    for command, words in (
        (("load",), "name the folder"),
        (("load", str(tmp_path)), "no OCI layouts"),
        (("logs",), "postgres migrate embed"),
        (("logs", "embed"), "no container"),
        (("status",), "not up"),
    ):
        code, said = host.run(*command)
        assert (code, words in said) == (1, True), (command, said)
