"""The detached supervisor: ``python -m services.appliance --home DIRECTORY``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from services.appliance.home import Home
from services.appliance.supervisor import Supervisor, run_detached


def main() -> int:
    """Run the supervisor of one data directory."""
    parser = argparse.ArgumentParser(prog="python -m services.appliance", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    return run_detached(Supervisor(Home.locate(parser.parse_args().home)))


if __name__ == "__main__":
    sys.exit(main())
