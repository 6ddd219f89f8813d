"""``undercroft repair``: check sidecars against the database and rebuild what is damaged."""

from __future__ import annotations

from typing import Annotated

import typer
from undercroft.ingest.v1 import index_service_pb2, project_service_pb2

from services.cli.connection import connect
from services.cli.options import HomeOption
from services.cli.output import console


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("repair")(repair)


def repair(
    projects: Annotated[list[str] | None, typer.Argument(help="Projects to check; all of them when none.")] = None,
    home: HomeOption = None,
) -> None:
    """Check the index files of projects by size and SHA-256, and rebuild what is damaged. Nothing is embedded."""
    out = console()
    with connect(home) as client:
        listed = client.projects.ListProjects(project_service_pb2.ListProjectsRequest(page_size=1000)).projects
        for name in [f"projects/{one}" for one in projects or []] or [one.name for one in listed]:
            response = client.index.RepairProject(index_service_pb2.RepairProjectRequest(project=name))
            short = name.removeprefix("projects/")
            if not response.damages:
                out.print(f"{short}: whole", markup=False)
            for damage in response.damages:
                out.print(f"{short}: {damage}", style="yellow", markup=False)
            if response.rebuilt_files:
                out.print(f"{short}: rebuilt {response.rebuilt_files} files", markup=False)
