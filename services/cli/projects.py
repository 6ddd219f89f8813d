"""``undercroft projects``: what is indexed, how it stands, and what was skipped."""

from __future__ import annotations

from typing import Annotated

import typer
from google.longrunning import operations_pb2
from rich.table import Table
from rich.text import Text
from undercroft.common.v1 import common_pb2
from undercroft.ingest.v1 import index_service_pb2, project_pb2, project_service_pb2
from undercroft.search.v1 import search_service_pb2

from services.cli.connection import connect
from services.cli.index import see_through
from services.cli.options import HomeOption, JsonOption
from services.cli.output import console, print_json
from services.cli.places import origin_of

group = typer.Typer(
    help="Projects: list, status, sources, skipped files, cancel, clear, delete.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

# What files have beside metadata has options of its own in `search`.
_OPTIONS = frozenset({"language", "package"})
_COLOURS = {common_pb2.METHOD_STATE_READY: "green", common_pb2.METHOD_STATE_BROKEN: "red"}

ProjectArgument = Annotated[str, typer.Argument(help="Id of the project.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(group, name="projects")


@group.command("list")
def list_projects(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List the projects."""
    with connect(home) as client:
        response = client.projects.ListProjects(project_service_pb2.ListProjectsRequest(page_size=1000))
    if as_json:
        print_json(response)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("project", "generation", "published", "model"):
        table.add_column(heading)
    for one in response.projects:
        published = f"{one.publish_time.ToDatetime():%Y-%m-%d %H:%M:%S}" if one.generation else "-"
        table.add_row(one.name.removeprefix("projects/"), str(one.generation), published, _models(one))
    console().print(table)


def _models(project: project_pb2.Project) -> str:
    """Name the model that answers, and the one that the next run changes to."""
    wanted, live = project.embedding_model or "-", project.live_embedding_model or "-"
    return wanted if wanted == live or not project.generation else f"{live} → {wanted}"


@group.command("status")
def project_status(project: ProjectArgument, as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Show how a project stands, method by method."""
    with connect(home) as client:
        request = project_service_pb2.GetProjectStatusRequest(name=f"projects/{project}")
        status = client.projects.GetProjectStatus(request)
        asked = client.projects.GetProject(project_service_pb2.GetProjectRequest(name=f"projects/{project}"))
    if as_json:
        print_json(status)
        return
    out = console()
    stale = f", stale: {status.snapshot.stale_reason}" if status.snapshot.stale else ""
    out.print(f"{project}: generation {status.snapshot.generation}{stale}", style="bold", markup=False)
    out.print(
        f"  {status.files} files, {status.chunks} chunks, {status.symbols} symbols, {status.references} references,"
        f" {status.decisions} decisions, {status.skipped_files} skipped"
    )
    by_itself = [f"every {asked.sync_interval.seconds} s"] if asked.sync_interval.seconds else []
    if by_itself or asked.watch:
        out.print(f"  indexed by itself: {' and '.join([*by_itself, *(['on edits'] if asked.watch else [])])}")
    if status.running_operation:
        out.print(f"  a run is under way: {status.running_operation}", style="yellow", markup=False)
    for method in status.methods:
        state = common_pb2.MethodState.Name(method.state).removeprefix("METHOD_STATE_").lower()
        line = Text.assemble(f"  {method.method:<17}", (f"{state:<9}", _COLOURS.get(method.state, "yellow")))
        line.append(f"{method.count:>8}  {method.engine}")
        if method.reason:
            line.append(f"  {method.reason} {method.remedy}")
        out.print(line)


@group.command("skipped")
def skipped(
    project: ProjectArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Files to show.")] = 100,
    home: HomeOption = None,
) -> None:
    """List the files that the last run skipped, with their reasons."""
    with connect(home) as client:
        response = client.index.ListSkippedFiles(
            index_service_pb2.ListSkippedFilesRequest(parent=f"projects/{project}", page_size=limit)
        )
    out = console()
    if not response.skipped_files:
        out.print("nothing was skipped")
    for one in response.skipped_files:
        out.print(Text.assemble((f"{one.reason:<20}", "yellow"), f" {one.path}  ", (one.detail, "dim")))
    if response.total_size > len(response.skipped_files):
        out.print(f"… {response.total_size - len(response.skipped_files)} more: raise --limit", style="dim")


@group.command("notes")
def notes(
    project: ProjectArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Notes to show.")] = 100,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """List what is to know of files although they are indexed: guessed encodings, lost structure, parts left out."""
    with connect(home) as client:
        request = index_service_pb2.ListFileNotesRequest(parent=f"projects/{project}", page_size=limit)
        response = client.index.ListFileNotes(request)
    if as_json:
        print_json(response)
        return
    out = console()
    if not response.notes:
        out.print("there are no notes")
    for one in response.notes:
        line = f":{one.line}" if one.line else ""
        out.print(Text.assemble((f"{one.code:<20}", "yellow"), f" {one.path}{line}  ", (one.detail, "dim")))
    left = sum(response.counts.values()) - len(response.notes)
    if left > 0:
        out.print(f"… {left} more: raise --limit", style="dim")


@group.command("facets")
def facets(project: ProjectArgument, as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List the metadata of files, by manifests and front matter, for `search --meta KEY=VALUE`, and its options."""
    with connect(home) as client:
        response = client.search.ListFacets(search_service_pb2.ListFacetsRequest(projects=[f"projects/{project}"]))
    if as_json:
        print_json(response)
        return
    out = console()
    for facet in response.facets:
        values = ", ".join(f"{one.value} ({one.files})" for one in facet.values)
        key = f"--{facet.key}" if facet.key in _OPTIONS else facet.key
        out.print(Text.assemble((f"{key:<20}", "cyan"), f" {values}"))


@group.command("sources")
def sources(project: ProjectArgument, as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List what a project is made of: folders, dependencies with their files, tiers."""
    with connect(home) as client:
        request = project_service_pb2.ListSourcesRequest(parent=f"projects/{project}", page_size=1000)
        response = client.projects.ListSources(request)
    if as_json:
        print_json(response)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("source", "package", "tier", "from"):
        table.add_column(heading)
    for one in response.sources:
        tier = project_pb2.Tier.Name(one.tier).removeprefix("TIER_").lower()
        table.add_row(one.name.rpartition("/")[2], one.package, tier, origin_of(one))
    console().print(table)


@group.command("remove-source")
def remove_source(
    project: ProjectArgument,
    source: Annotated[str, typer.Argument(help="Id of the source, as `projects sources` lists it.")],
    home: HomeOption = None,
) -> None:
    """Take a folder or wheel out of a project. Its chunks leave with the next index run."""
    with connect(home) as client:
        name = f"projects/{project}/sources/{source}"
        client.projects.DeleteSource(project_service_pb2.DeleteSourceRequest(name=name))
    console().print(f"removed {source}; `undercroft index --project {project}` takes its chunks out", markup=False)


@group.command("cancel")
def cancel(project: ProjectArgument, home: HomeOption = None) -> None:
    """Stop the run that is under way. The live generation stays; what was embedded stays in the cache."""
    with connect(home) as client:
        request = project_service_pb2.GetProjectStatusRequest(name=f"projects/{project}")
        running = client.projects.GetProjectStatus(request).running_operation
        if not running:
            console().print(f"no run of {project} is under way", markup=False)
            return
        client.operations.CancelOperation(operations_pb2.CancelOperationRequest(name=running))
        client.operations.WaitOperation(operations_pb2.WaitOperationRequest(name=running), timeout=120)
    console().print(f"cancelled {running}", markup=False)


@group.command("clear")
def clear(
    project: ProjectArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: HomeOption = None,
) -> None:
    """Empty a project: a generation with nothing in it goes live. Its folders and embeddings stay."""
    if not yes:
        typer.confirm(f"Empty project {project}?", abort=True)
    with connect(home) as client:
        operation = client.index.ClearProject(index_service_pb2.ClearProjectRequest(project=f"projects/{project}"))
        see_through(client, console(), project, operation.name)


@group.command("delete")
def delete(
    project: ProjectArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: HomeOption = None,
) -> None:
    """Delete a project with all that belongs to it. Its folders are not touched."""
    if not yes:
        typer.confirm(f"Delete project {project}?", abort=True)
    with connect(home) as client:
        client.projects.DeleteProject(project_service_pb2.DeleteProjectRequest(name=f"projects/{project}"))
    console().print(f"deleted {project}", markup=False)
