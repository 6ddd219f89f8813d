"""``undercroft cache``: the embedding cache as a file, what it holds, and what is removed from it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import grpc
import typer
from google.protobuf import duration_pb2
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from undercroft.client import Client, explain
from undercroft.embed.v1 import embed_service_pb2
from undercroft.ingest.v1 import index_service_pb2

from services.cli.connection import connect
from services.cli.options import HomeOption, JsonOption
from services.cli.output import console, fail, print_json
from services.core.errors import Conflict, InvalidArgument, NotFound, NotReady, UndercroftError

group = typer.Typer(help="Embedding cache: export, import, status, prune.", no_args_is_help=True, rich_markup_mode=None)

_PART_BYTES = 1 << 20
# Of a digest, as `cache status` shows it.
_SHORT = 12
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])")
_LONGEST_S = 100 * 365 * 86_400


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(group, name="cache")


@group.command("export")
def export_cache(
    file: Annotated[Path, typer.Argument(help="File to write.")],
    model: Annotated[
        str, typer.Option("--model", help="Only the vectors of this model: its name, its digest or the digest's start.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    home: HomeOption = None,
) -> None:
    """Write the embedding cache to one file. It has its name only once it is whole."""
    out = console()
    temporary = file.with_name(f"{file.name}.tmp-{secrets.token_hex(4)}")
    try:
        _check_target(file, force)
        with connect(home) as client:
            request = index_service_pb2.ExportCacheRequest(model=_digest(client, model) if model else "")
            size_bytes, sha256 = _write(temporary, client.index.ExportCache(request))
        _check_target(file, force)
        temporary.replace(file)
        _sync_folder(file.absolute().parent)
    except UndercroftError as error:
        fail(error)
    except OSError as error:
        fail(NotReady(f"{file} can't be written: {error.strerror}.", remedy="Name a file on a disk with space."))
    finally:
        temporary.unlink(missing_ok=True)
    out.print(f"exported {file}: {decimal(size_bytes)}", markup=False)
    out.print(f"  SHA-256 {sha256}", markup=False)


@group.command("import")
def import_cache(
    file: Annotated[Path, typer.Argument(help="File that `undercroft cache export` wrote.")],
    home: HomeOption = None,
) -> None:
    """Take an exported file into the embedding cache: all of it, or nothing when it is damaged or does not fit."""
    unread: list[OSError] = []
    try:
        with file.open("rb") as source, connect(home) as client:
            response = client.index.ImportCache(_parts(source, unread))
            cached = client.index.GetCacheStatus(index_service_pb2.GetCacheStatusRequest()).models
            here = _model_digests(client).values()
    except OSError as error:
        unread.append(error)
    except grpc.RpcError:
        # What can't be read on makes a truncated file, which is refused.
        if not unread:
            raise
    if unread:
        fail(NotFound(f"{file} can't be read: {unread[0].strerror}.", remedy="Check the path and the disk."))
    out = console()
    out.print(f"imported {file}: {response.added} vectors added, {response.known} there already", markup=False)
    for one in cached:
        if here and one.digest not in here:
            out.print(
                f"  {one.vectors} vectors in the cache are of model {one.digest[:_SHORT]}, which is not here:"
                " install the prepared directory that made them",
                markup=False,
            )


@group.command("status")
def cache_status(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Show what the embedding cache holds, by model."""
    with connect(home) as client:
        status = client.index.GetCacheStatus(index_service_pb2.GetCacheStatusRequest())
        names = {} if as_json else {digest: name for name, digest in _model_digests(client).items()}
    if as_json:
        print_json(status)
        return
    out = console()
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "digest", "dimensions", "vectors", "unused", "size"):
        table.add_column(heading)
    for one in status.models:
        counts = (str(one.dimensions), str(one.vectors), str(one.unused))
        table.add_row(names.get(one.digest, "-"), one.digest[:_SHORT], *counts, decimal(one.size_bytes))
    out.print(table if status.models else "The cache is empty.")
    out.print(f"unused vectors are kept for {_spoken(status.retention.ToSeconds())}", style="dim", markup=False)


@group.command("prune")
def prune_cache(
    unused_for: Annotated[
        str,
        typer.Option(
            "--unused-for",
            help="Remove what was unused for so long, such as 30d, 12h or 90m [default: the service's retention].",
        ),
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Remove all that is unused now.")] = False,
    home: HomeOption = None,
) -> None:
    """Remove vectors whose text no project has any more. The service does so by itself after its retention."""
    request = index_service_pb2.PruneCacheRequest()
    try:
        if everything and unused_for:
            raise InvalidArgument("--all and --unused-for exclude each other.", remedy="Give one of them.")
        if everything:
            request.unused_for.SetInParent()
        elif unused_for:
            request.unused_for.CopyFrom(_duration(unused_for))
    except UndercroftError as error:
        fail(error)
    with connect(home) as client:
        response = client.index.PruneCache(request)
    console().print(f"removed {response.removed} vectors, kept {response.kept}", markup=False)


def _check_target(file: Path, force: bool) -> None:
    if file.is_dir():
        raise InvalidArgument(f"{file} is a folder.", remedy="Name a file.")
    if file.exists() and not force:
        raise Conflict(f"There is a file {file} already.", remedy="Name another, or replace it with --force.")


def _digest(client: Client, model: str) -> str:
    """Return the digest that a model's name, digest or start of a digest means."""
    cached = client.index.GetCacheStatus(index_service_pb2.GetCacheStatusRequest()).models
    found = [one.digest for one in cached if one.digest.startswith(model)] if len(model) >= _SHORT // 2 else []
    named = _model_digests(client).get(model)
    if named is not None:
        found = [named]
    if len(found) != 1:
        raise NotFound(
            f"{model!r} means {'several models' if found else 'no model'}.",
            remedy="`undercroft cache status` lists the models that the cache has vectors of, with their digests.",
        )
    return found[0]


def _model_digests(client: Client) -> dict[str, str]:
    """Return the digests of the embed service's models by name; nothing when it is away: names are for people."""
    try:
        models = client.embed.GetInfo(embed_service_pb2.GetInfoRequest(), timeout=10).models
    except grpc.RpcError as error:
        if explain(error).code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            raise
        return {}
    return {one.name: one.digest for one in models if one.digest}


def _write(path: Path, parts: Iterable[index_service_pb2.ExportCacheResponse]) -> tuple[int, str]:
    """Write parts to a new file and to the disk; return its size in bytes and its SHA-256."""
    hasher = hashlib.sha256()
    with path.open("xb") as sink, _progress("exporting", None) as progress:
        for part in parts:
            sink.write(part.data)
            hasher.update(part.data)
            progress.advance(progress.task_ids[0], len(part.data))
        sink.flush()
        os.fsync(sink.fileno())
        return sink.tell(), hasher.hexdigest()


def _parts(source: BinaryIO, unread: list[OSError]) -> Iterator[index_service_pb2.ImportCacheRequest]:
    """Yield a file in parts; an error of the disk ends it and goes to ``unread``."""
    with _progress("importing", os.fstat(source.fileno()).st_size) as progress:
        try:
            while data := source.read(_PART_BYTES):
                yield index_service_pb2.ImportCacheRequest(data=data)
                progress.advance(progress.task_ids[0], len(data))
        except OSError as error:
            unread.append(error)


def _progress(what: str, total_bytes: int | None) -> Progress:
    out = console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=out, transient=True, disable=not out.is_terminal)
    progress.add_task(what, total=total_bytes)
    return progress


def _duration(text: str) -> duration_pb2.Duration:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidArgument(f"{text!r} is no time span.", remedy="Give a number and s, m, h, d or w, such as 30d.")
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(round(min(float(match[1]) * _UNITS_S[match[2]], _LONGEST_S) * 1e9))
    return duration


def _spoken(seconds: int) -> str:
    for word, unit_s in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.3g} {word}"
    return f"{seconds} seconds"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # File systems of removable disks may refuse it; the file has its name by then.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
