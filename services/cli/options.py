"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Data directory [default: $UNDERCROFT_HOME or ~/.local/share/undercroft]."),
]
ProjectsOption = Annotated[
    list[str] | None, typer.Option("--project", "-p", help="Look in this project only; may be repeated.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
