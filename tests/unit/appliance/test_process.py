from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from services.appliance.account import launcher
from services.appliance.process import boot_id, command_line, identify, reap, spawn_detached


def test_a_process_is_not_its_pid() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert own.is_alive()
    assert not replace(own, start_ticks=own.start_ticks - 1).is_alive()
    assert not replace(own, boot_id="another").is_alive()
    assert own.boot_id == boot_id()
    assert 0 <= own.uptime_s() < 86_400


def test_signals_reach_only_the_process_that_was_meant() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = identify(process.pid)
        assert identity is not None
        replace(identity, start_ticks=0).send(signal.SIGKILL)
        replace(identity, start_ticks=0).send_group(signal.SIGKILL)
        assert not identity.wait(0.05)
        identity.send(signal.SIGTERM)
        assert identity.wait(5)
        # Dead, although nobody has collected it.
        assert Path(f"/proc/{process.pid}").exists()
        assert identify(process.pid) is None


def test_a_name_with_parentheses_and_spaces_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a ) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        deadline = time.monotonic() + 5
        while command_line(process.pid)[:1] != (str(program),) and time.monotonic() < deadline:
            time.sleep(0.01)
        identity = identify(process.pid)
        assert identity is not None
        assert identity.is_alive()
        process.kill()


def test_a_detached_process_leads_its_session_and_appends_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    script = "import os; print(os.getsid(0) == os.getpid(), os.getcwd()); raise SystemExit(7)"
    pid = spawn_detached([sys.executable, "-c", script], environment={}, directory=tmp_path, log=log)
    deadline = time.monotonic() + 10
    while reap(pid) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reap(pid) == 7
    assert log.read_text() == f"before\nTrue {tmp_path}\n"


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([*sys.argv[2:], f'--die-with-parent={os.getpid()}:9', '--', '/bin/sleep', '60'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
        "while b'sleep' not in open(f'/proc/{child.pid}/cmdline', 'rb').read()[:20]: pass\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "pid"), *launcher()], check=False)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while identify(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert identify(pid) is None


def test_a_child_of_a_dead_parent_does_not_start() -> None:
    command = [*launcher(), "--die-with-parent=1:9", "--", "/bin/echo", "started"]
    completed = subprocess.run(command, capture_output=True, check=False)
    assert (completed.returncode, completed.stdout) == (1, b"")
