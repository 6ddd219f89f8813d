"""``undercroft up``: start the appliance."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer
from rich.console import Console

from services.appliance.discovery import require
from services.appliance.home import Home
from services.cli.options import HomeOption, fail
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

    console = Console(highlight=False, soft_wrap=True)
    try:
        place = Home.locate(home)
        if foreground:
            logging.basicConfig(
                level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr, force=True
            )
            run_supervisor(Supervisor(place))
            return
        if console.is_terminal:
            with console.status("starting") as spinner:
                started = control.start(place, limit_s=timeout_s, on_phase=spinner.update)
        else:
            started = control.start(place, limit_s=timeout_s, on_phase=console.print)
        verb = "is already running" if started.already else "is ready"
        console.print(f"Undercroft {verb} in {place.root}", markup=False)
        for service, target in require(place).targets.items():
            console.print(f"  {service:<10} {target}", markup=False)
    except UndercroftError as error:
        fail(error)
