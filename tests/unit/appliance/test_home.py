from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from services.appliance.home import FORMAT_VERSION, Home
from services.core.errors import Conflict, DataLoss, InvalidArgument, NotReady


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_named_directory_wins_over_the_environment_and_that_over_the_default(tmp_path: Path) -> None:
    full = {"UNDERCROFT_HOME": "/srv/undercroft", "XDG_DATA_HOME": "/data"}
    assert Home.locate(tmp_path, full).root == tmp_path
    assert Home.locate(None, full).root == Path("/srv/undercroft")
    assert Home.locate(None, {"XDG_DATA_HOME": "/data"}).root == Path("/data/undercroft")
    # The XDG specification: relative paths are to be ignored.
    assert Home.locate(None, {"XDG_DATA_HOME": "data"}).root == Path.home() / ".local/share/undercroft"
    assert Home.locate(Path("here"), {}).root == Path.cwd() / "here"


def test_everything_that_is_created_is_closed_to_others(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "b" / "home")
    previous = os.umask(0)
    try:
        home.create()
    finally:
        os.umask(previous)
    created = [home.root.parent.parent, home.root.parent, home.root, *home.root.iterdir()]
    assert len(created) == 3 + 9
    assert {_mode(path) & 0o077 for path in created} == {0}


def test_permissions_of_what_exists_are_left_alone(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    outer.chmod(0o711)
    (outer / "home").mkdir()
    (outer / "home").chmod(0o750)
    Home(outer / "home").create()
    Home(outer / "home").create()
    assert (_mode(outer), _mode(outer / "home")) == (0o711, 0o750)


def test_a_later_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    (home.root / "format").write_text(f"{FORMAT_VERSION + 1}\n")
    home.local.rmdir()
    with pytest.raises(NotReady, match="later release") as caught:
        home.create()
    assert caught.value.reason == "FORMAT_TOO_NEW"
    assert not home.local.exists()


def test_a_damaged_format_is_not_guessed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    (home.root / "format").write_bytes(b"\xff\x00")
    with pytest.raises(DataLoss):
        home.create()


def test_a_directory_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InvalidArgument, match=r"thesis\.tex"):
        Home(tmp_path).create()
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_directory_that_holds_only_models_is_taken(tmp_path: Path) -> None:
    (tmp_path / "models" / "minilm").mkdir(parents=True)
    Home(tmp_path).create()
    assert Home(tmp_path).exists()


def test_a_path_that_cannot_be_created_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotReady, match="Not a directory"):
        Home(tmp_path / "file" / "home").create()


def test_one_holder_at_a_time_and_it_is_named(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    with home.lock("supervisor"):
        supervisor = home.supervisor()
        assert supervisor is not None
        assert supervisor.pid == os.getpid()
        with pytest.raises(Conflict, match=f"process {os.getpid()} \\(supervisor\\)"), home.lock("down", 0.0):
            pass
    assert home.supervisor() is None
    with home.lock("down"):
        assert home.supervisor() is None


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    script = (
        "import os, signal, sys; from pathlib import Path; from services.appliance.home import Home\n"
        "with Home(Path(sys.argv[1])).lock('supervisor'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(home.root)], check=False)
    assert home.supervisor() is None
    with home.lock("supervisor", 0.0):
        assert home.supervisor() is not None
