"""``undercroft index``: bring a project up to date with its sources."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import grpc
import typer
from google.protobuf import field_mask_pb2
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from undercroft.client import Client, explain
from undercroft.ingest.v1 import index_run_pb2, index_service_pb2, project_pb2, project_service_pb2

from services.cli.connection import connect
from services.cli.options import HomeOption
from services.cli.output import console, fail
from services.cli.places import Place, ensure_sources, origin_of, places_of
from services.core.errors import InvalidArgument, UndercroftError

_STAGES = {
    index_run_pb2.INDEX_STAGE_QUEUED: "waiting",
    index_run_pb2.INDEX_STAGE_DISCOVER: "looking at files",
    index_run_pb2.INDEX_STAGE_EXTRACT: "extracting",
    index_run_pb2.INDEX_STAGE_DECISIONS: "mining decisions",
    index_run_pb2.INDEX_STAGE_EMBED: "embedding",
    index_run_pb2.INDEX_STAGE_SIDECARS: "writing indexes",
    index_run_pb2.INDEX_STAGE_PUBLISH: "publishing",
    index_run_pb2.INDEX_STAGE_DONE: "done",
}


_TIERS = {
    "full": project_pb2.TIER_FULL,
    "doc_pages": project_pb2.TIER_DOC_PAGES,
    "none": project_pb2.TIER_NONE,
}
_NOT_STARTED = (index_run_pb2.INDEX_STAGE_UNSPECIFIED, index_run_pb2.INDEX_STAGE_QUEUED)
_SILENCE_S = 5.0
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("index")(index)


def index(
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PLACE]...",
            help="Folders, archives (tar, tar.gz, tar.zst, zip), git bundles, bare repositories or git URLs; "
            "none: the sources that the project has already.",
        ),
    ] = None,
    project: Annotated[
        str, typer.Option("--project", "-p", help="Project to index into [default: from the first place's name].")
    ] = "",
    revision: Annotated[
        str | None,
        typer.Option(
            "--revision",
            help="Branch, tag or commit to index of the git repositories that are named; folders with a .git are taken "
            "as such then.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str, typer.Option("--source", help="Id of the source, for a single place [default: from its name].")
    ] = "",
    model: Annotated[
        str | None, typer.Option("--model", help='Embedding model of the project; "" for none.', show_default=False)
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every file, whatever its size and time say.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Extract every file anew.")] = False,
    re_embed: Annotated[
        bool, typer.Option("--re-embed", help="Embed every text anew, whatever the cache has.")
    ] = False,
    dependencies: Annotated[
        bool | None,
        typer.Option(
            "--dependencies/--no-dependencies",
            help="Index the packages that the project declares too, from the wheel directory.",
            show_default=False,
        ),
    ] = None,
    tiers: Annotated[
        list[str] | None,
        typer.Option(
            "--tier",
            metavar="GLOB=TIER",
            help="What to embed of packages that the glob fits: full, doc_pages (what documents them) or none. "
            "The rules of a call replace the former ones; '' alone removes them.",
        ),
    ] = None,
    watch: Annotated[
        bool | None,
        typer.Option("--watch/--no-watch", help="Index edits of the project's folders by itself.", show_default=False),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="INTERVAL",
            help="Index by itself so often: 90s, 15m, 6h, 1d; 0 for never.",
            show_default=False,
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Bring a project up to date, and say what was done."""
    out = console()
    try:
        wanted = places_of(places or [], revision, source)
        name = _project(wanted, project)
        settings = _settings(model, dependencies, tiers, watch, every)
    except UndercroftError as error:
        fail(error)
    with connect(home) as client:
        listed, is_new = _ensure_project(client, name, settings, wanted, named=bool(project))
        try:
            # A new one was created with all of it where a model is named.
            if settings.fields and not (is_new and "embedding_model" in settings.fields):
                _update(client, name, settings)
            ensure_sources(client, name, wanted, listed)
        except (grpc.RpcError, UndercroftError):
            if is_new:
                # Of what is refused nothing stays.
                client.projects.DeleteProject(project_service_pb2.DeleteProjectRequest(name=f"projects/{name}"))
            raise
        if watch and not any(one.HasField("folder") for one in _sources(client, name)):
            out.print("  no source is a folder, so there is nothing to watch: use --every", style="yellow")
        request = index_service_pb2.RunIndexRequest(
            project=f"projects/{name}", verify=verify, force=force, re_embed=re_embed
        )
        see_through(client, out, name, client.index.RunIndex(request).name)


def see_through(client: Client, out: Console, project: str, operation: str) -> None:
    """Follow a run to its end and show its report; leave with status 1 when it failed."""
    status = client.projects.GetProjectStatus(project_service_pb2.GetProjectStatusRequest(name=f"projects/{project}"))
    if status.running_operation and status.running_operation != operation:
        out.print("waiting for the run that is under way")
    try:
        report = _watch(client, out, operation)
    except KeyboardInterrupt:
        out.print(
            f"The run goes on: `undercroft projects status {project}` tells, `projects cancel {project}` stops it."
        )
        raise typer.Exit(130) from None
    ended = client.operations.GetOperation(_operation_request(operation))
    if ended.HasField("error"):
        out.print(f"{project}: failed: {ended.error.message}", style="red", markup=False)
        if report.generation:
            out.print(f"Generation {report.generation} stays live.")
        raise typer.Exit(1)
    _show(out, project, report)


@dataclass(frozen=True, slots=True)
class _Settings:
    """What the project is to be, and which fields of it were asked for."""

    project: project_pb2.Project
    fields: list[str]


def _settings(
    model: str | None, dependencies: bool | None, tiers: list[str] | None, watch: bool | None, every: str | None
) -> _Settings:
    project, fields = project_pb2.Project(), []
    if model is not None:
        project.embedding_model = model
        fields.append("embedding_model")
    if dependencies is not None:
        project.index_dependencies = dependencies
        fields.append("index_dependencies")
    for rule in filter(None, tiers or ()):
        glob, _, tier = rule.rpartition("=")
        number = _TIERS.get(tier)
        if not glob or number is None:
            raise InvalidArgument(f"{rule!r} is no GLOB=TIER.", remedy=f"Tiers are {', '.join(_TIERS)}.")
        project.tiers.add(package_glob=glob, tier=number)
    if tiers:
        fields.append("tiers")
    if watch is not None:
        project.watch = watch
        fields.append("watch")
    if every is not None:
        project.sync_interval.FromSeconds(_interval_s(every))
        fields.append("sync_interval")
    return _Settings(project, fields)


def _interval_s(text: str) -> int:
    match = re.fullmatch(r"(\d{1,6})([smhd]?)", text.strip())
    if match is None:
        raise InvalidArgument(f"{text!r} is no interval.", remedy="Give a number and s, m, h or d: 15m.")
    return int(match[1]) * _SECONDS[match[2]]


def _project(places: Sequence[Place], project: str) -> str:
    """Return the project's id: the one that was given, or that of the first place."""
    if not places and not project:
        raise InvalidArgument("Nothing to index.", remedy="Name a folder, or a project with --project.")
    return project or places[0].source_id


def _ensure_project(
    client: Client, name: str, settings: _Settings, places: Sequence[Place], *, named: bool
) -> tuple[list[project_pb2.Source], bool]:
    """Create the project where it is missing; return its sources, and whether it is new.

    A project that was not named but guessed from a place must have that place already, or be new.
    """
    # Without a project in the request, a new one gets the default model.
    wanted = settings.project if "embedding_model" in settings.fields else None
    listed: list[project_pb2.Source] = []
    exists = not places
    try:
        if places:
            client.projects.CreateProject(project_service_pb2.CreateProjectRequest(project_id=name, project=wanted))
    except grpc.RpcError as error:
        if explain(error).code != "ALREADY_EXISTS":
            raise
        exists = True
    if exists:
        # Without places a project that is not there is a mistake, not a new project.
        listed = _sources(client, name)
    if listed and not named and not any(one.is_of(source) for one in places for source in listed):
        fail(
            InvalidArgument(
                f"There is a project {name!r} already, of {', '.join(sorted(map(origin_of, listed)))}.",
                remedy=f"Add to it with `--project {name}`, or name another project with `--project`.",
            )
        )
    return listed, not exists


def _sources(client: Client, project: str) -> list[project_pb2.Source]:
    request = project_service_pb2.ListSourcesRequest(parent=f"projects/{project}", page_size=1000)
    return list(client.projects.ListSources(request).sources)


def _update(client: Client, project: str, settings: _Settings) -> None:
    settings.project.name = f"projects/{project}"
    client.projects.UpdateProject(
        project_service_pb2.UpdateProjectRequest(
            project=settings.project, update_mask=field_mask_pb2.FieldMask(paths=settings.fields)
        )
    )


def _watch(client: Client, out: Console, operation: str) -> index_run_pb2.IndexRunReport:
    """Follow a run to its end: with a progress bar, or where there is no terminal with a line now and then."""
    request = index_service_pb2.WatchIndexRunRequest(operation=operation)
    report = index_run_pb2.IndexRunReport()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    said_at, said = time.monotonic(), ""
    # Of a run that waits for its turn the service tells nothing until it starts.
    waits = threading.Timer(_SILENCE_S, out.print, ["waiting for its turn: other runs are under way"])
    waits.daemon = True
    waits.start()
    with (
        contextlib.ExitStack() as stack,
        Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress,
    ):
        stack.callback(waits.cancel)
        task = progress.add_task("waiting", total=None)
        for update in client.index.WatchIndexRun(request):
            report = update.report
            if update.done or report.stage not in _NOT_STARTED:
                waits.cancel()
            misses = report.embeddings.cache_misses
            embedding = report.stage == index_run_pb2.INDEX_STAGE_EMBED and misses
            stage = _STAGES.get(report.stage, "working")
            progress.update(
                task,
                description=stage,
                total=misses if embedding else None,
                completed=report.embeddings.embedded if embedding else 0,
            )
            if not out.is_terminal and time.monotonic() - said_at > _SILENCE_S:
                line = f"  {stage} {report.embeddings.embedded} of {misses}" if embedding else f"  {stage}"
                if line != said:
                    out.print(line)
                    said_at, said = time.monotonic(), line
    return report


def _show(out: Console, project: str, report: index_run_pb2.IndexRunReport) -> None:
    files, chunks, embeddings = report.files, report.chunks, report.embeddings
    seconds = (report.end_time.ToNanoseconds() - report.start_time.ToNanoseconds()) / 1e9
    state = f"published as generation {report.generation}" if report.published else "nothing changed"
    out.print(f"{project}: {state} in {seconds:.2f} s", style="bold", markup=False)
    out.print(
        f"  files       {files.new} new, {files.changed} changed, {files.unchanged} unchanged, {files.deleted} deleted,"
        f" {files.skipped} skipped"
    )
    out.print(f"  chunks      {chunks.added} added, {chunks.removed} removed, {chunks.moved} moved, {chunks.kept} kept")
    if embeddings.model:
        out.print(
            f"  embeddings  {embeddings.embedded} made via {embeddings.model}, {embeddings.cache_hits} there already"
        )
    if report.renewal_reason:
        out.print(f"  made anew: {report.renewal_reason}", style="yellow", markup=False)
    for warning in report.warnings:
        out.print(f"  {warning}", style="yellow", markup=False)
    for one in report.degraded:
        out.print(f"  without {one.method}: {one.reason} {one.remedy}", style="yellow", markup=False)
    if files.skipped:
        out.print(f"  `undercroft projects skipped {project}` lists the skipped files with their reasons")


def _operation_request(name: str) -> object:
    from google.longrunning import operations_pb2

    return operations_pb2.GetOperationRequest(name=name)
