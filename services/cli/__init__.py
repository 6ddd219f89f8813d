"""The command line: one module per group of commands, each with ``register``."""

from __future__ import annotations

import importlib.metadata
from typing import Annotated

import grpc
import typer

from services.cli import cache, down, index, models, projects, references, repair, search, status, up, validate, why
from services.cli.output import fail_call, fail_undecodable

app = typer.Typer(
    name="undercroft",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Help texts say [default: ...], which rich would take for markup.
    rich_markup_mode=None,
)


def show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"undercroft {importlib.metadata.version('undercroft')}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Where is it, what hangs on it, and why is it so? Answers from your own code and docs, inside the gap."""


for group in (up, down, status, index, search, references, why, validate, projects, cache, repair, models):
    group.register(app)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except grpc.RpcError as error:
        fail_call(error)
    except UnicodeEncodeError:
        fail_undecodable()
