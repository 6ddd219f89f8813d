"""Build images with buildah: nothing is fetched, no step has a network, and all times are one time."""

from __future__ import annotations

import dataclasses
import datetime
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ops.images.images import MODEL, POSTGRES, ROOT, Catalogue, Image
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

    Raises ``DataLoss`` where the two differ, with the layers that do.
    """
    fresh = dataclasses.replace(place, uses_cache=False)
    first = build(fresh, names)
    layers = {name: _layers(place, name) for name in names}
    second = build(fresh, names)
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
    for name in _BASES:
        if not (place.out / "bases" / f"{name}.tar").exists():
            raise NotReady(
                f"The root file system {name} is not there.",
                remedy=f"Run `make bases`, or carry its archives into {place.out / 'bases'}.",
                reason="BASE_MISSING",
            )
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
        _buildah_build(place, text, place.out / "bases", f"{place.prefix}/{name}-base", ())


def _build_image(place: Workplace, image: Image) -> str:
    labels = place.catalogue.labels(image, revision(), _rfc3339(place.catalogue.epoch_s))
    options = [f"--{kind}={name}={value}" for name, value in labels.items() for kind in ("label", "annotation")]
    context = ROOT
    if image.name == POSTGRES:
        text = (ROOT / "ops/images/postgres.Containerfile").read_text("utf-8").replace("@PREFIX@", place.prefix)
    elif image.name == MODEL:
        context, text = place.models, _model_containerfile(place)
    else:
        text = image.containerfile(place.prefix)
        options.append(f"--build-context=wheels={place.wheels}")
    _buildah_build(place, text, context, place.reference(image.name), options)
    return _export(place, image.name)


def _model_containerfile(place: Workplace) -> str:
    """Return the Containerfile of the image that carries the demo model with its licences.

    It has Python, since before image volumes a program of the image has to copy the model.
    """
    model = "all-minilm-l6-v2"
    if not (place.models / model / "manifest.json").exists():
        raise NotReady(f"The demo model is not in {place.models}.", remedy="Run `make model`.", reason="MODEL_MISSING")
    return (
        f"FROM {place.prefix}/runtime-base AS runtime\n"
        f"FROM {place.prefix}/runtime-base\n"
        f"COPY {model} /models/{model}\n"
        f"COPY --from=runtime /usr/share/common-licenses/Apache-2.0 /models/{model}/LICENSE.Apache-2.0\n"
        "USER 65532:0\n"
    )


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
    # What runs here is what was written. The path becomes a name, where `.cache` would not do.
    image = run("buildah", "pull", "--quiet", f"oci:{name}:{place.catalogue.version}", folder=layout.parent).strip()
    run("buildah", "tag", image, place.reference(name))
    run("buildah", "rmi", f"localhost/{name}")
    return digest


def revision() -> str:
    """Return the commit that is built, marked where files differ from it; empty outside of a repository."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return ""
    commit = run("git", "-C", str(ROOT), "rev-parse", "HEAD").strip()
    is_changed = run("git", "-C", str(ROOT), "status", "--porcelain").strip()
    return f"{commit}-modified" if is_changed else commit


def run(*command: str, folder: Path = ROOT) -> str:
    """Run a program and return what it wrote. Raises ``NotReady`` with its last lines where it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        said = " / ".join(line.strip() for line in (done.stderr or done.stdout).splitlines()[-8:] if line.strip())
        raise NotReady(f"{command[0]} {command[1]} failed: {said}", reason="BUILD_FAILED")
    return done.stdout


def _rfc3339(time_s: int) -> str:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
