"""What runs in the builder: install an image's wheels from the mirror, leave out what it does not need, compile.

Stands alone, on the standard library and pip: ``python3 install.py libraries|own IMAGE``. Without a network; it looks.
"""

from __future__ import annotations

import base64
import csv
import fnmatch
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

BUILD = Path("/build")
WHEELS = Path("/wheels")
SITE = "usr/local/lib/python3.11/dist-packages"
OUT = Path("/out")
USER_ID = 65532


def main() -> None:
    step, image = sys.argv[1:]
    os.umask(0o022)
    table = tomllib.loads((BUILD / "images.toml").read_text("utf-8"))["image"][image]
    if interfaces := sorted(set(os.listdir("/sys/class/net")) - {"lo"}):
        sys.exit(f"this build sees a network ({', '.join(interfaces)}): run it with --network none")
    site = OUT / SITE
    if step == "libraries":
        locks = BUILD / "locks" / f"linux-{platform.machine()}"
        pip("install", "--require-hashes", f"--target={site}", *(f"-r{locks / name}.txt" for name in table["sets"]))
        shutil.rmtree(site / "bin", ignore_errors=True)
        trim(site, image)
        normalise_modes(OUT)
        for folder in table.get("folders", ()):
            make_folder(OUT / folder.lstrip("/"))
    else:
        tools = Path("/tmp/tools")
        pip(
            "install",
            "--require-hashes",
            f"--target={tools}",
            f"-r{BUILD / 'locks'}/linux-{platform.machine()}/build.txt",
        )
        built = Path("/tmp/own")
        environment = {**os.environ, "PYTHONPATH": str(tools)}
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
        run(command, environment, BUILD / "source")
        pip("install", f"--target={site}", *map(str, built.glob("*.whl")))
        shutil.rmtree(site / "bin", ignore_errors=True)
        keep_packages(site, table["packages"], table.get("without", ()))
        normalise_modes(OUT)
    for folder in site.glob("*.dist-info"):
        rewrite_record(site, folder)
    compile_all(site)


def pip(*arguments: str) -> None:
    """Run pip on the mirror and nothing else."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    options = ["--isolated", "--no-index", f"--find-links={WHEELS}", "--no-deps", "--only-binary=:all:", "--no-compile"]
    options += ["--no-cache-dir", "--disable-pip-version-check", "--root-user-action=ignore", "--quiet"]
    command = [sys.executable, "-m", "pip", arguments[0], *options, *arguments[1:]]
    run(command, {**environment, "PIP_CONFIG_FILE": os.devnull})


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> None:
    """Run a program; where it fails, what it has said is all that is said."""
    if code := subprocess.run(command, env=environment, cwd=folder, check=False).returncode:
        sys.exit(code)


def normalise_modes(tree: Path) -> None:
    """Let every user read, and nobody but the owner write: modes of a checkout tell of the umask of who made it."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)


def make_folder(folder: Path) -> None:
    """Make a mount point that any user of group 0 may write to, as a new volume takes over owner and rights of it."""
    folder.mkdir(parents=True)
    while folder != OUT and folder.name not in {"lib", "var"}:
        os.chown(folder, USER_ID, 0)
        folder.chmod(0o775)
        folder = folder.parent


def trim(site: Path, image: str) -> None:
    """Leave out what ``trim.toml`` names for an image. Ends the build where an entry matches nothing."""
    rules = tomllib.loads((BUILD / "trim.toml").read_text("utf-8"))
    for rule in rules["distributions"]:
        if image in rule["images"]:
            for name in rule["names"]:
                remove_distribution(site, name)
    paths = [(path, path.relative_to(site).as_posix()) for path in sorted(site.rglob("*")) if path.is_file()]
    for rule in rules["files"]:
        if image in rule["images"]:
            found = 0
            for path, name in paths:
                if ".dist-info/" not in name and any(fnmatch.fnmatchcase(name, one) for one in rule["patterns"]):
                    path.unlink(missing_ok=True)
                    found += 1
            if not found:
                sys.exit(f"trim.toml: nothing matches {rule['patterns']} in {image}")
    remove_empty(site)


def remove_distribution(site: Path, name: str) -> None:
    """Remove every file that a distribution's RECORD names."""
    wanted = name.replace("-", "_")
    folders = [one for one in site.glob("*.dist-info") if one.name.lower().rsplit("-", 1)[0].startswith(f"{wanted}-")]
    if len(folders) != 1:
        sys.exit(f"trim.toml: {name} is not one installed distribution")
    for row in read_record(folders[0]):
        (site / row[0]).unlink(missing_ok=True)
    shutil.rmtree(folders[0])


def keep_packages(site: Path, packages: Iterable[str], without: Iterable[str]) -> None:
    """Keep of our own code what an image runs: its packages, and what all share."""
    kept = {"services.core", *packages}
    for path in sorted((site / "services").rglob("*")):
        name = ".".join(path.relative_to(site).with_suffix("").parts)
        is_within = any(name == one or name.startswith(f"{one}.") for one in kept)
        is_left_out = any(name == one or name.startswith(f"{one}.") for one in without)
        if path.is_file() and (
            path.suffix in {".proto", ".pyi"} or is_left_out or (not is_within and path.parent.name != "services")
        ):
            path.unlink()
    for path in sorted((site / "undercroft").rglob("*")):
        if path.suffix in {".proto", ".pyi"}:
            path.unlink()
    remove_empty(site)


def remove_empty(site: Path) -> None:
    for path in sorted(site.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def read_record(folder: Path) -> Iterator[list[str]]:
    with (folder / "RECORD").open(newline="", encoding="utf-8") as file:
        yield from csv.reader(file)


def rewrite_record(site: Path, folder: Path) -> None:
    """Let a RECORD name what is there, so that it can be checked, and nothing of where and when it was installed."""
    for name in ("direct_url.json", "INSTALLER", "REQUESTED"):
        (folder / name).unlink(missing_ok=True)
    rows = [row for row in read_record(folder) if (site / row[0]).is_file() and not row[0].startswith("../")]
    for row in rows:
        if row[1]:
            kind, _, digest = row[1].partition("=")
            content = (site / row[0]).read_bytes()
            found = base64.urlsafe_b64encode(hashlib.new(kind, content).digest()).rstrip(b"=").decode()
            if found != digest:
                sys.exit(f"{row[0]} is not the file that its wheel records")
    with (folder / "RECORD").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def compile_all(site: Path) -> None:
    """Compile for a root that nobody can write to; the bytes depend on the source alone, not on its time."""
    command = [
        sys.executable,
        "-m",
        "compileall",
        "-q",
        "-j1",
        "--invalidation-mode=unchecked-hash",
        "-s",
        str(OUT),
        "-p",
        "/",
    ]
    run = subprocess.run([*command, site], env={**os.environ, "PYTHONHASHSEED": "0"}, check=False, capture_output=True)
    # Templates of libraries that are no Python fail to compile; what is imported is proven where the image starts.
    if run.returncode and b"SyntaxError" not in run.stdout:
        sys.exit(run.stdout.decode(errors="replace"))


if __name__ == "__main__":
    main()
