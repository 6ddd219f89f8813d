"""``python -m ops.images``: what `make bases` and `make images` run."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import time
from pathlib import Path

from ops.images.bases import make_bases
from ops.images.bills import write_bills
from ops.images.building import Workplace, build, build_twice
from ops.images.contents import read_contents
from ops.images.exclusion import alone_in
from ops.images.images import ROOT, Image, load_catalogue
from ops.images.packages import RootFs, load_packages
from ops.images.proving import prove
from services.core.errors import DataLoss, NotReady, UndercroftError


def main() -> None:
    arguments = _parser().parse_args()
    # What is started goes in the end, also where a time limit ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        arguments.run(arguments)
    except UndercroftError as error:
        sys.exit(str(error))


def _bases(arguments: argparse.Namespace) -> None:
    roots = load_packages()
    if unknown := [name for name in arguments.names if name not in roots]:
        sys.exit(f"no root file system {', '.join(unknown)}: there are {', '.join(roots)}")
    with alone_in(arguments.out):
        _make_bases(arguments, roots)


def _make_bases(arguments: argparse.Namespace, roots: dict[str, RootFs]) -> None:
    make_bases(
        {name: root for name, root in roots.items() if not arguments.names or name in arguments.names},
        arguments.out / "bases",
        mirror=arguments.mirror,
        epoch_s=load_catalogue().epoch_s,
        record=arguments.record,
    )


def _build(arguments: argparse.Namespace) -> None:
    place = dataclasses.replace(_place(arguments), uses_cache=not arguments.no_cache)
    start = time.monotonic()
    names = _names(arguments)
    with alone_in(place.out):
        digests = (build_twice if arguments.twice else build)(place, names)
    for name, digest in digests.items():
        print(f"{place.reference(name)} {digest}{' (twice)' if arguments.twice else ''}")
    print(f"built in {time.monotonic() - start:.0f} s")


def _report(arguments: argparse.Namespace) -> None:
    """Write the bills of materials of the images that are there, and print sizes; 1 where one is too large."""
    place = _place(arguments)
    with alone_in(place.out):
        images = [image for name, image in place.catalogue.images.items() if place.layout(name).is_dir()]
        if not images:
            raise NotReady(f"There are no images in {place.out}.", remedy="Run `make images`.", reason="IMAGE_MISSING")
        print(f"{'image':<12}{'MB':>8}{'sent MB':>9}{'Debian':>8}{'Python':>8}  digest")
        too_large = [said for image in images if (said := _report_image(place, image))]
    print(f"bills of materials: {place.out / 'bills'}")
    if too_large:
        sys.exit("; ".join(too_large))


def _report_image(place: Workplace, image: Image) -> str:
    """Write the bills of an image and print its line; returns what is wrong with its size."""
    contents = read_contents(place.layout(image.name))
    if not contents.os_packages:
        raise DataLoss(
            f"{image.name} has no Debian package, and all images are made of some: its root file system was not whole.",
            remedy="Run `make bases` and `make images` again.",
            reason="IMAGE_INCOMPLETE",
        )
    write_bills(contents, image.name, place.catalogue.version, place.catalogue.epoch_s, place.out / "bills")
    size_mb = contents.size_bytes / 1e6
    counts = f"{len(contents.os_packages):>8}{len(contents.distributions):>8}"
    print(f"{image.name:<12}{size_mb:>8.1f}{contents.compressed_bytes / 1e6:>9.1f}{counts}  {contents.digest}")
    is_too_large = image.max_mb and size_mb > image.max_mb
    return f"{image.name} has {size_mb:.0f} MB, and may have {image.max_mb}" if is_too_large else ""


def _check(arguments: argparse.Namespace) -> None:
    prove(_place(arguments), arguments.sdist)


def _containerfile(arguments: argparse.Namespace) -> None:
    (name,) = _known([arguments.image])
    print(load_catalogue().images[name].containerfile(arguments.prefix), end="")


def _place(arguments: argparse.Namespace) -> Workplace:
    return Workplace(
        load_catalogue(),
        arguments.out.resolve(),
        arguments.wheels.resolve(),
        arguments.models.resolve(),
        arguments.prefix,
    )


def _names(arguments: argparse.Namespace) -> list[str]:
    images = load_catalogue().images
    return _known(arguments.images) or [name for name, image in images.items() if not image.is_separate]


def _known(names: list[str]) -> list[str]:
    images = load_catalogue().images
    if unknown := [name for name in names if name not in images]:
        sys.exit(f"no image {', '.join(unknown)}: there are {', '.join(images)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ops.images", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "images", help="folder for what is made")
    parser.add_argument("--prefix", default="localhost/undercroft", help="registry and path before the images' names")
    parser.add_argument("--wheels", type=Path, default=ROOT / "wheels", help="the wheel mirror [default: wheels]")
    parser.add_argument("--models", type=Path, default=ROOT / ".cache" / "models", help="folder of the demo model")
    commands = parser.add_subparsers(required=True)
    bases = commands.add_parser("bases", help="make the root file systems from Debian packages")
    bases.add_argument("names", nargs="*", help="names [default: all]")
    bases.add_argument("--mirror", default="", help="Debian mirror [default: mmdebstrap's]")
    bases.add_argument("--record", action="store_true", help="record the packages in ops/images/packages.lock")
    bases.set_defaults(run=_bases)
    building = commands.add_parser("build", help="build images and write them as OCI layouts")
    building.add_argument("images", nargs="*", help="names [default: all but models]")
    building.add_argument("--no-cache", action="store_true", help="build every layer anew")
    building.add_argument("--twice", action="store_true", help="prove that two builds without caches give one digest")
    building.set_defaults(run=_build)
    report = commands.add_parser("report", help="write bills of materials (SPDX, CycloneDX), and print sizes")
    report.set_defaults(run=_report)
    check = commands.add_parser("check", help="run the images where every attempt to leave is recorded (as root)")
    check.add_argument("--sdist", type=Path, help="the sdist to index [default: that of this project]")
    check.set_defaults(run=_check)
    containerfile = commands.add_parser("containerfile", help="print the Containerfile of an image, for other builders")
    containerfile.add_argument("image")
    containerfile.set_defaults(run=_containerfile)
    return parser


if __name__ == "__main__":
    main()
