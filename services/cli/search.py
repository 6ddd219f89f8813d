"""``undercroft search``: find chunks by words and meaning."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text
from undercroft.common.v1 import common_pb2
from undercroft.search.v1 import search_pb2, search_service_pb2

from services.cli.connection import connect
from services.cli.options import HomeOption, JsonOption, ProjectsOption
from services.cli.output import console, fail, print_json
from services.core.errors import InvalidArgument

_SNIPPET_LINES = 8
_LEXERS = {"": "text", "restructuredtext": "rst"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("search")(search)


def search(
    query: Annotated[str, typer.Argument(help="Words, an identifier, or a question.")],
    project: ProjectsOption = None,
    preset: Annotated[str, typer.Option("--preset", help="hybrid, lexical, dense or rrf.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="Hits to show.")] = 5,
    package: Annotated[
        list[str] | None, typer.Option("--package", help="Only this package: of a source, or a dependency.")
    ] = None,
    path: Annotated[list[str] | None, typer.Option("--path", help="Only paths like this glob, e.g. 'src/**'.")] = None,
    language: Annotated[list[str] | None, typer.Option("--language", help="Only this language.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only function, method, class, module, section, text, decision.")
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="KEY=VALUE", help="Only files with this metadata; KEY alone for any value."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show whole chunks.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Find chunks, best first, and say why each is there."""
    request = search_service_pb2.SearchRequest(
        query=query,
        projects=names(project),
        preset=preset,
        page_size=limit,
        filter=common_pb2.Filter(
            packages=package or [],
            path_globs=path or [],
            languages=language or [],
            kinds=[_kind(one) for one in kind or []],
            metadata=_metadata(meta or []),
        ),
    )
    with connect(home) as client:
        response = client.search.Search(request)
    if as_json:
        print_json(response)
        return
    out = console()
    for hit in response.hits:
        _show(out, hit, full)
    for report in response.legs:
        if report.state not in (common_pb2.METHOD_STATE_READY, common_pb2.METHOD_STATE_UNSPECIFIED):
            out.print(f"without {report.leg}: {report.reason} {report.remedy}", style="yellow", markup=False)
    for hint in response.hints:
        out.print(" ".join([hint.message, *hint.terms]), style="yellow", markup=False)
    show_snapshots(out, response.snapshots)
    if not response.hits:
        raise typer.Exit(1)


def _metadata(wanted: list[str]) -> list[common_pb2.MetadataFilter]:
    """Join what is wanted by key: any of a key's values, and all of the keys."""
    filters: dict[str, common_pb2.MetadataFilter] = {}
    for one in wanted:
        key, _, value = one.partition("=")
        found = filters.setdefault(key, common_pb2.MetadataFilter(key=key))
        if value:
            found.values.append(value)
    return list(filters.values())


def names(projects: list[str] | None) -> list[str]:
    """Return the resource names of projects."""
    return [f"projects/{one}" for one in projects or []]


def _kind(name: str) -> common_pb2.ChunkKind.ValueType:
    try:
        return common_pb2.ChunkKind.Value(f"CHUNK_KIND_{name.upper()}")
    except ValueError:
        kinds = ", ".join(one.removeprefix("CHUNK_KIND_").lower() for one in common_pb2.ChunkKind.keys()[1:])
        fail(InvalidArgument(f"There is no kind {name!r}.", remedy=f"Kinds are: {kinds}."))


def place(where: common_pb2.Place) -> str:
    """Write a place as project/package:path:first-last."""
    project = where.project.removeprefix("projects/")
    owner = project if where.package == project else f"{project}/{where.package}"
    span = where.span
    lines = f"{span.start_line}" if span.end_line == span.start_line else f"{span.start_line}-{span.end_line}"
    return f"{owner}:{where.path}:{lines}"


def show_snapshots(out: Console, snapshots: object) -> None:
    """Say which generations answered, and which of them are stale."""
    parts = []
    for one in snapshots:  # type: ignore[attr-defined]
        stale = f", stale: {one.stale_reason}" if one.stale else ""
        parts.append(f"{one.project.removeprefix('projects/')} generation {one.generation}{stale}")
    out.print("from " + "; ".join(parts), style="dim", markup=False)


def _show(out: Console, hit: search_pb2.Hit, full: bool) -> None:
    out.print(Text.assemble((place(hit.place), "bold cyan"), "  ", (hit.title, "italic")))
    parts = []
    for part in hit.parts:
        matched = f" ({' '.join(part.matched_terms)})" if part.matched_terms else ""
        parts.append(f"{part.leg} #{part.rank} {part.score:.3f}{matched} gives {part.contribution:.3f}")
    out.print(Text(f"  score {hit.score:.3f} = " + " + ".join(parts), style="dim"))
    for other in hit.other_places:
        out.print(Text(f"  also {place(other)}", style="dim"))
    lines = hit.text.splitlines()
    shown = lines if full else lines[:_SNIPPET_LINES]
    first = hit.place.span.start_line
    if out.is_terminal:
        # Highlighting is slow to import, and only people need it.
        from rich.syntax import Syntax

        lexer = _LEXERS.get(hit.language, hit.language)
        code = "\n".join(shown)
        out.print(Syntax(code, lexer, line_numbers=True, start_line=first, background_color="default", padding=(0, 2)))
    else:
        for number, line in enumerate(shown, first):
            out.print(f"  {number:>5} {line}".rstrip(), markup=False)
    if len(lines) > len(shown):
        out.print(Text(f"    … {len(lines) - len(shown)} more lines", style="dim"))
    out.print()
