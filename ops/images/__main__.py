"""``python -m ops.images``: what `make bases` and `make images` run."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ops.images.bases import make_bases
from ops.images.packages import load_packages
from services.core.errors import UndercroftError

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / ".cache" / "images"
EPOCH_S = 1764547200


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.images", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="folder for what is made [default: .cache/images]")
    commands = parser.add_subparsers(dest="command", required=True)
    bases = commands.add_parser("bases", help="make the root file systems from Debian packages")
    bases.add_argument("--mirror", default=os.environ.get("MIRROR", ""), help="Debian mirror [default: mmdebstrap's]")
    bases.add_argument("--record", action="store_true", help="record the packages in ops/images/packages.lock")
    arguments = parser.parse_args()
    try:
        make_bases(
            load_packages(),
            arguments.out / "bases",
            mirror=arguments.mirror,
            epoch_s=EPOCH_S,
            record=arguments.record,
        )
    except UndercroftError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
