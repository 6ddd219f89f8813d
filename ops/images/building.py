"""Build images with buildah: nothing is fetched, no step has a network, and all times are one time."""

from __future__ import annotations

import dataclasses
import datetime
import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ops.images.archives import check_archives
from ops.images.images import MODEL, MODEL_NAME, ROOT, Catalogue, Image
from ops.images.install import normalise_modes
from ops.images.layouts import make_canonical
from services.core.errors import DataLoss, NotReady

_BASES = ("builder", "runtime", "git", "postgres")
_GIT_IS_ON = "runtime"


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where images are made: ``out`` has the bases and takes the results, ``wheels`` is the mirror."""

    catalogue: Catalogue
    out: Path
    wheels: Path
    models: Path
    prefix: str
    uses_cache: bool = True

    def reference(self, name: str) -> str:
        """Return the local name of an image."""
        return f"{self.prefix}/{name}:{self.catalogue.version}"

    @property
    def bases(self) -> Path:
        """Return the folder of the archives of root file systems."""
        return self.out / "bases"

    def layout(self, name: str) -> Path:
        """Return the folder of an image in the OCI image layout."""
        return self.out / "oci" / name


def build(place: Workplace, names: Sequence[str]) -> dict[str, str]:
    """Build images and write each as an OCI layout; returns their digests by name."""
    _check(place)
    _build_bases(place)
    return {name: _build_image(place, place.catalogue.images[name]) for name in names}


def build_twice(place: Workplace, names: Sequence[str]) -> dict[str, str]:
    """Build images twice without any cache; returns their digests.

    Raises ``DataLoss`` where the two differ, with the layers that do, and ``NotReady`` where the checkout changed.
    """
    fresh = dataclasses.replace(place, uses_cache=False)
    commit = revision()
    first = build(fresh, names)
    layers = {name: _layers(place, name) for name in names}
    second = build(fresh, names)
    if revision() != commit:
        raise NotReady(
            "The checkout changed while it was built twice, and every image's label names the commit.",
            remedy="Do it again, and commit nothing meanwhile; or do it in a clone.",
            reason="CHECKOUT_CHANGED",
        )
    for name in names:
        if first[name] != second[name]:
            differing = [old for old, new in zip(layers[name], _layers(place, name), strict=False) if old != new]
            raise DataLoss(
                f"{name} has the digests {first[name]} and {second[name]}; layers {', '.join(differing) or 'agree'}.",
                remedy="Compare their files: something depends on the time, on an order, or on chance.",
                reason="IMAGE_NOT_REPRODUCIBLE",
            )
    return second


def _layers(place: Workplace, name: str) -> list[str]:
    layout = place.layout(name)
    digest = json.loads((layout / "index.json").read_text("utf-8"))["manifests"][0]["digest"]
    manifest = json.loads((layout / "blobs" / digest.replace(":", "/")).read_text("utf-8"))
    return [layer["digest"] for layer in manifest["layers"]]


def _check(place: Workplace) -> None:
    if shutil.which("buildah") is None:
        raise NotReady(
            "buildah is not installed.", remedy="Install it: `apt-get install buildah`.", reason="PROGRAM_MISSING"
        )
    check_archives(place.bases, _BASES)
    if not place.wheels.is_dir():
        raise NotReady(
            f"There is no wheel mirror at {place.wheels}.",
            remedy="Run `make wheels`, or carry the folder in and name it: WHEELS=DIR.",
            reason="MIRROR_MISSING",
        )


def _build_bases(place: Workplace) -> None:
    for name in _BASES:
        start = f"{place.prefix}/{_GIT_IS_ON}-base" if name == "git" else "scratch"
        text = f"FROM {start}\nADD {name}.tar /\n"
        # A base has no version: it is what its archive is.
        _buildah_build(place, text, place.bases, f"{place.prefix}/{name}-base", ())


def _build_image(place: Workplace, image: Image) -> str:
    labels = place.catalogue.labels(image, revision(), _rfc3339(place.catalogue.epoch_s))
    options = [f"--{kind}={name}={value}" for name, value in labels.items() for kind in ("label", "annotation")]
    if image.command:
        options.append(f"--build-context=wheels={place.wheels}")
    context = _model_context(place) if image.name == MODEL else nullcontext(ROOT)
    with context as folder:
        text = image.containerfile(place.prefix)
        _buildah_build(place, text, folder, place.reference(image.name), options)
    return _export(place, image.name)


@contextmanager
def _model_context(place: Workplace) -> Iterator[Path]:
    """Yield a folder with a copy of the demo model that every user may read, whatever the umask of who prepared it."""
    source = place.models / MODEL_NAME
    if not (source / "manifest.json").exists():
        raise NotReady(
            f"The demo model is not in {place.models}.",
            remedy="`make images` prepares it before it builds; or carry the folder in and name it: --models.",
            reason="MODEL_MISSING",
        )
    with TemporaryDirectory(prefix="model-") as scratch:
        shutil.copytree(source, Path(scratch) / MODEL_NAME)
        normalise_modes(Path(scratch) / MODEL_NAME)
        yield Path(scratch)


def _buildah_build(place: Workplace, text: str, context: Path, tag: str, options: Sequence[str]) -> None:
    with TemporaryDirectory(prefix="build-") as scratch:
        containerfile = Path(scratch) / "Containerfile"
        containerfile.write_text(text, "utf-8")
        run(
            "buildah",
            "build",
            "--quiet",
            "--network=none",
            "--pull=false",
            "--format=oci",
            f"--timestamp={place.catalogue.epoch_s}",
            f"--build-arg=SOURCE_DATE_EPOCH={place.catalogue.epoch_s}",
            # Without it all instructions make one layer, and that image has another digest.
            "--layers",
            # A build that fails leaves no container with its mounts behind.
            "--force-rm",
            *(() if place.uses_cache else ("--no-cache",)),
            f"--tag={tag}",
            f"--file={containerfile}",
            *options,
            str(context),
        )


def _export(place: Workplace, name: str) -> str:
    layout = place.layout(name)
    shutil.rmtree(layout, ignore_errors=True)
    layout.parent.mkdir(parents=True, exist_ok=True)
    source = f"oci:{layout}:{place.catalogue.version}"
    run("buildah", "push", "--quiet", place.reference(name), source)
    digest = make_canonical(layout)
    layout.with_suffix(".digest").write_text(f"{digest}\n", "ascii")
    # What runs here is what was written. A pull names the image after its folder: a name that nobody else has.
    with TemporaryDirectory(prefix="export-") as scratch:
        own_name = f"undercroft-{secrets.token_hex(8)}"
        (Path(scratch) / own_name).symlink_to(layout)
        image = run("buildah", "pull", "--quiet", f"oci:{own_name}:{place.catalogue.version}", folder=Path(scratch))
    run("buildah", "tag", image.strip(), place.reference(name))
    run("buildah", "rmi", f"localhost/{own_name}")
    return digest


def revision() -> str:
    """Return the commit that is built, marked where files differ from it; empty outside of a repository."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return ""
    commit = run("git", "-C", str(ROOT), "rev-parse", "HEAD").strip()
    is_changed = run("git", "-C", str(ROOT), "status", "--porcelain").strip()
    return f"{commit}-modified" if is_changed else commit


def run(*command: str, folder: Path = ROOT) -> str:
    """Run a program and return what it wrote. Raises ``NotReady`` with what it said where it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, umask=0o022)
    if done.returncode:
        raise _failure(command, done.stderr or done.stdout)
    return done.stdout


def _failure(command: Sequence[str], said: str) -> NotReady:
    lines = [line.rstrip() for line in said.splitlines() if line.strip()]
    about_wheels = any("install.py" in line and line.startswith("Error: building at STEP") for line in lines)
    # What a program of a step said is what failed; that the step failed is known.
    told = [line for line in lines if not line.startswith("Error: building at STEP")] or lines
    return NotReady(
        f"{command[0]} {command[1]} failed:\n" + "\n".join(told[-40:]),
        remedy="\n`make verify-wheels` names every wheel that is missing or is not the one of the locks."
        if about_wheels
        else "",
        reason="BUILD_FAILED",
    )


def _rfc3339(time_s: int) -> str:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
