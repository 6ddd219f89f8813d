"""``undercroft up``: start the appliance."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer

from services.appliance.discovery import require
from services.appliance.home import Home
from services.cli.connection import SERVICES, variable
from services.cli.options import HomeOption
from services.cli.output import console, fail
from services.core.errors import UndercroftError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("up")(up)


def up(
    home: HomeOption = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Supervise in this process; Ctrl-C stops the appliance.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait until it is ready.", min=1)
    ] = 600.0,
) -> None:
    """Start Postgres and the services, and wait until all of them serve."""
    # Imported here, as commands that only call services are quicker without psycopg and the supervisor.
    from services.appliance import control
    from services.appliance.supervisor import Supervisor, run_supervisor

    out = console()
    try:
        place = Home.locate(home)
        if foreground:
            logging.basicConfig(
                level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr, force=True
            )
            run_supervisor(Supervisor(place))
            return
        if out.is_terminal:
            with out.status("starting") as spinner:
                started = control.start(place, limit_s=timeout_s, on_phase=spinner.update)
        else:
            started = control.start(place, limit_s=timeout_s, on_phase=out.print)
        verb = "is already running" if started.already else "is ready"
        out.print(f"Undercroft {verb} in {place.root}", markup=False)
        for service, target in require(place).targets.items():
            out.print(f"  {service:<10} {target}", markup=False)
        if named := [name for name in map(variable, SERVICES) if os.environ.get(name)]:
            out.print(
                f"Commands call these services only with --home, or once you unset {', '.join(named)}.", style="yellow"
            )
    except UndercroftError as error:
        fail(error)
