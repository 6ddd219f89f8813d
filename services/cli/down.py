"""``undercroft down``: stop the appliance."""

from __future__ import annotations

from typing import Annotated

import typer

from services.appliance.home import Home
from services.cli.options import HomeOption
from services.cli.output import console, fail
from services.core.errors import UndercroftError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("down")(down)


def down(
    home: HomeOption = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long calls may drain before it kills.", min=1)
    ] = 180.0,
) -> None:
    """Stop the services and Postgres, leftovers of a killed supervisor included."""
    from services.appliance import control

    out = console()
    try:
        place = Home.locate(home)
        stopped = control.stop(place, limit_s=timeout_s, on_phase=out.print)
    except UndercroftError as error:
        fail(error)
    if not stopped:
        out.print(f"Nothing is running in {place.root}", markup=False)
    elif "supervisor" in stopped:
        out.print(f"Undercroft in {place.root} is stopped", markup=False)
    else:
        out.print(f"Stopped what a killed supervisor had left: {', '.join(stopped)}", markup=False)
