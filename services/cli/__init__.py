"""The command line: one module per group of commands, each with ``register``."""

from __future__ import annotations

import grpc
import typer

from services.cli import down, index, models, projects, references, repair, search, status, up, why
from services.cli.output import fail_call

app = typer.Typer(
    name="undercroft",
    help="Where is it, what hangs on it, and why is it so? Answers from your own code and docs, inside the gap.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for group in (up, down, status, index, search, references, why, projects, repair, models):
    group.register(app)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except grpc.RpcError as error:
        fail_call(error)
