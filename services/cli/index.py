"""``undercroft index``: bring a project up to date with its folders."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
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


_SILENCE_S = 5.0


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("index")(index)


def index(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders to index; none: those that the project has already.")
    ] = None,
    project: Annotated[
        str, typer.Option("--project", "-p", help="Project to index into [default: from the first folder's name].")
    ] = "",
    model: Annotated[
        str | None, typer.Option("--model", help='Embedding model of the project; "" for none.', show_default=False)
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every file, whatever its size and time say.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Extract every file anew.")] = False,
    home: HomeOption = None,
) -> None:
    """Bring a project up to date, and say what was done."""
    out = console()
    try:
        name, wanted = _wanted(folders or [], project)
    except UndercroftError as error:
        fail(error)
    with connect(home) as client:
        _ensure_project(client, name, model, wanted, named=bool(project))
        request = index_service_pb2.RunIndexRequest(project=f"projects/{name}", verify=verify, force=force)
        operation = client.index.RunIndex(request)
        report = _watch(client, out, operation.name)
        ended = client.operations.GetOperation(_operation_request(operation.name))
        _show(out, name, report)
        if ended.HasField("error"):
            out.print(f"The run failed: {ended.error.message}", style="red", markup=False)
            raise typer.Exit(1)


def _wanted(folders: list[Path], project: str) -> tuple[str, list[Path]]:
    """Return the project's id and the folders, resolved."""
    if not folders and not project:
        raise InvalidArgument("Nothing to index.", remedy="Name a folder, or a project with --project.")
    for folder in folders:
        if not folder.is_dir():
            raise InvalidArgument(f"{folder} is no folder.", remedy="Check the path.")
    resolved = [folder.resolve() for folder in folders]
    return project or _slug(resolved[0].name), resolved


def _slug(name: str) -> str:
    """Make a resource id of a folder's name."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:63]
    return slug or "root"


def _ensure_project(client: Client, name: str, model: str | None, folders: list[Path], *, named: bool) -> None:
    """Create the project and its sources where they are missing, and give it the model that was asked for.

    A project that was not named but guessed from a folder must have that folder already, or be new.
    """
    parent = f"projects/{name}"
    wanted = None if model is None else project_pb2.Project(embedding_model=model)
    listed: list[project_pb2.Source] = []
    try:
        client.projects.CreateProject(project_service_pb2.CreateProjectRequest(project_id=name, project=wanted))
    except grpc.RpcError as error:
        if explain(error).code != "ALREADY_EXISTS":
            raise
        request = project_service_pb2.ListSourcesRequest(parent=parent, page_size=1000)
        listed = list(client.projects.ListSources(request).sources)
        if model is not None:
            _set_model(client, parent, model)
    known = {source.folder.path for source in listed}
    if listed and not named and not known & {os.fspath(folder) for folder in folders}:
        fail(
            InvalidArgument(
                f"There is a project {name!r} already, of {', '.join(sorted(known))}.",
                remedy=f"Add the folder to it with `--project {name}`, or name another project with `--project`.",
            )
        )
    taken = {source.name.rpartition("/")[2] for source in listed}
    for folder in folders:
        if os.fspath(folder) in known:
            continue
        source_id = next(one for one in _names(_slug(folder.name)) if one not in taken)
        taken.add(source_id)
        source = project_pb2.Source(folder=project_pb2.FolderOrigin(path=os.fspath(folder)))
        client.projects.CreateSource(
            project_service_pb2.CreateSourceRequest(parent=parent, source_id=source_id, source=source)
        )


def _set_model(client: Client, project: str, model: str) -> None:
    client.projects.UpdateProject(
        project_service_pb2.UpdateProjectRequest(
            project=project_pb2.Project(name=project, embedding_model=model),
            update_mask=field_mask_pb2.FieldMask(paths=["embedding_model"]),
        )
    )


def _names(slug: str) -> list[str]:
    return [slug, *(f"{slug[:58]}-{number}" for number in range(2, 1000))]


def _watch(client: Client, out: Console, operation: str) -> index_run_pb2.IndexRunReport:
    """Follow a run to its end: with a progress bar, or where there is no terminal with a line now and then."""
    request = index_service_pb2.WatchIndexRunRequest(operation=operation)
    report = index_run_pb2.IndexRunReport()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    said_at, said = time.monotonic(), ""
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("waiting", total=None)
        for update in client.index.WatchIndexRun(request):
            report = update.report
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
        out.print(f"  all files were extracted anew: {report.renewal_reason}", style="yellow", markup=False)
    for one in report.degraded:
        out.print(f"  without {one.method}: {one.reason} {one.remedy}", style="yellow", markup=False)
    if files.skipped:
        out.print(f"  `undercroft projects skipped {project}` lists the skipped files with their reasons")


def _operation_request(name: str) -> object:
    from google.longrunning import operations_pb2

    return operations_pb2.GetOperationRequest(name=name)
