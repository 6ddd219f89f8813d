"""``undercroft why``: the decisions behind something."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text
from undercroft.decisions.v1 import decision_pb2, decision_service_pb2

from services.cli.connection import connect
from services.cli.options import HomeOption, JsonOption, ProjectsOption
from services.cli.output import console, print_json
from services.cli.search import names, place, show_snapshots

_PASSAGE_LINES = 6
_LINKS = 6


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("why")(why)


def why(
    query: Annotated[str, typer.Argument(help="A question, a path of the project, or a symbol.")],
    project: ProjectsOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=50, help="Decisions to show.")] = 3,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Find the decisions that answer a question, with the passages that say so."""
    request = decision_service_pb2.WhyRequest(query=query, projects=names(project), page_size=limit)
    with connect(home) as client:
        response = client.decisions.Why(request)
    if as_json:
        print_json(response)
        return
    out = console()
    for reason in response.reasons:
        decision = reason.decision
        status = decision_pb2.DecisionStatus.Name(decision.status).removeprefix("DECISION_STATUS_").lower()
        number = f"{decision.number}. " if decision.HasField("number") else ""
        date = f", {decision.date}" if decision.date else ""
        out.print(Text.assemble((f"{number}{decision.title}", "bold"), f"  [{status}{date}]"))
        out.print(Text(f"  {place(decision.place)}", style="cyan"))
        for link in decision.links[:_LINKS]:
            out.print(Text(f"  {link.kind.replace('_', ' ')} {link.target}", style="dim"))
        for passage in reason.passages:
            out.print(Text.assemble("  ", (place(passage.place), "cyan"), "  ", (passage.title, "italic")))
            lines = passage.text.splitlines()
            for line in lines[:_PASSAGE_LINES]:
                out.print(Text(f"    {line}"))
            if len(lines) > _PASSAGE_LINES:
                out.print(Text(f"    … {len(lines) - _PASSAGE_LINES} more lines", style="dim"))
        out.print()
    for hint in response.hints:
        out.print(hint, style="yellow", markup=False)
    show_snapshots(out, response.snapshots)
    if not response.reasons:
        raise typer.Exit(1)
