"""Options that several commands have, and how a command fails."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from services.core.errors import UndercroftError

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Data directory [default: $UNDERCROFT_HOME or ~/.local/share/undercroft]."),
]
ProjectsOption = Annotated[
    list[str] | None, typer.Option("--project", "-p", help="Look in this project only; may be repeated.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def fail(error: UndercroftError) -> NoReturn:
    """Print the cause and the next step, and end with 1."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(error.message.rstrip(), style="red", markup=False)
    if error.remedy:
        console.print(error.remedy, markup=False)
    raise typer.Exit(1)
