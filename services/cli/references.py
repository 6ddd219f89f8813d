"""``undercroft refs``: what refers to a symbol, and what it refers to."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text
from undercroft.search.v1 import search_pb2, search_service_pb2

from services.cli.connection import connect
from services.cli.options import HomeOption, JsonOption, ProjectsOption
from services.cli.output import console, print_json
from services.cli.search import names, place, show_snapshots


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("refs")(refs)


def refs(
    symbol: Annotated[str, typer.Argument(help="Name, qualified name, or the end of one (Session.get).")],
    project: ProjectsOption = None,
    outgoing: Annotated[bool, typer.Option("--outgoing", help="What the symbol refers to instead.")] = False,
    certain: Annotated[bool, typer.Option("--certain", help="Leave out what is known by name only.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="References to show.")] = 30,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """List what calls, imports, inherits or mentions a symbol."""
    direction = (
        search_service_pb2.REFERENCE_DIRECTION_OUTGOING if outgoing else search_service_pb2.REFERENCE_DIRECTION_INCOMING
    )
    request = search_service_pb2.ListReferencesRequest(
        symbol=symbol, projects=names(project), direction=direction, resolved_only=certain, page_size=limit
    )
    with connect(home) as client:
        response = client.search.ListReferences(request)
    if as_json:
        print_json(response)
        return
    out = console()
    for one in response.symbols:
        out.print(Text.assemble((place(one.place), "bold cyan"), f"  {one.kind} ", (one.qualified_name, "bold")))
        if one.summary:
            out.print(Text(f"  {one.summary}", style="italic"))
    for reference in response.references:
        kind = search_pb2.ReferenceKind.Name(reference.kind).removeprefix("REFERENCE_KIND_").lower()
        other = reference.target_symbol if outgoing else reference.source_symbol
        by_name = "" if reference.resolved else " (by name)"
        out.print(Text.assemble(f"  {kind:<9}", (place(reference.place), "cyan"), f"  {other}{by_name}"))
        out.print(Text(f"            {reference.line}", style="dim"))
    if response.next_page_token:
        out.print("  … more: raise --limit", style="dim")
    for hint in response.hints:
        out.print(hint.message, style="yellow", markup=False)
    show_snapshots(out, response.snapshots)
    if not response.references and not response.symbols:
        raise typer.Exit(1)
