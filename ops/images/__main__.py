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
from ops.images.images import ROOT, load_catalogue
from ops.images.packages import load_packages
from ops.images.proving import prove
from services.core.errors import UndercroftError


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
    digests = (build_twice if arguments.twice else build)(place, _names(arguments))
    for name, digest in digests.items():
        print(f"{place.reference(name)} {digest}{' (twice)' if arguments.twice else ''}")
    print(f"built in {time.monotonic() - start:.0f} s")


def _report(arguments: argparse.Namespace) -> None:
    """Write the bills of materials of the images that are there, and print sizes; 1 where one is too large."""
    place = _place(arguments)
    too_large = []
    print(f"{'image':<12}{'MB':>8}{'sent MB':>9}{'Debian':>8}{'Python':>8}  digest")
    for name, image in place.catalogue.images.items():
        if not place.layout(name).is_dir():
            continue
        contents = read_contents(place.layout(name))
        write_bills(contents, name, place.catalogue.version, place.catalogue.epoch_s, place.out / "bills")
        size_mb = contents.size_bytes / 1e6
        counts = f"{len(contents.os_packages):>8}{len(contents.distributions):>8}"
        print(f"{name:<12}{size_mb:>8.1f}{contents.compressed_bytes / 1e6:>9.1f}{counts}  {contents.digest}")
        if image.max_mb and size_mb > image.max_mb:
            too_large.append(f"{name} has {size_mb:.0f} MB, and may have {image.max_mb}")
    print(f"bills of materials: {place.out / 'bills'}")
    if too_large:
        sys.exit("; ".join(too_large))


def _check(arguments: argparse.Namespace) -> None:
    prove(_place(arguments), arguments.sdist)


def _containerfile(arguments: argparse.Namespace) -> None:
    print(load_catalogue().images[arguments.image].containerfile(arguments.prefix), end="")


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
    if unknown := [name for name in arguments.images if name not in images]:
        sys.exit(f"no image {', '.join(unknown)}: there are {', '.join(images)}")
    return arguments.images or [name for name, image in images.items() if not image.is_separate]


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
    containerfile = commands.add_parser("containerfile", help="print the Containerfile of a service's image")
    containerfile.add_argument("image")
    containerfile.set_defaults(run=_containerfile)
    return parser


if __name__ == "__main__":
    main()
