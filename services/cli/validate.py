"""``undercroft validate`` and ``undercroft chunks``: what indexing would make of files, before it does."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from services.appliance.home import Home
from services.cli.options import HomeOption
from services.cli.output import console, fail
from services.core.cpu import cpu_threads
from services.core.errors import InvalidArgument, UndercroftError
from services.core.names import check_model

if TYPE_CHECKING:
    from services.ingest.chunks import Chunk, TokenCounter
    from services.ingest.extraction.worker import Extracted, Outcome
    from services.ingest.manifests import Manifests
    from services.ingest.skips import Skipped

_DEFAULT_MODEL = "all-minilm-l6-v2"

ModelOption = Annotated[
    str, typer.Option("--model", help="Model of the appliance to cut chunks for [default: that of new projects].")
]
PipelineOption = Annotated[Path | None, typer.Option("--pipeline", help="An ingestion.yaml in place of the product's.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("validate")(validate_folder)
    app.command("chunks")(show_chunks)


def validate_folder(
    folder: Annotated[Path, typer.Argument(help="Folder to look at.")] = Path("."),
    model: ModelOption = "",
    pipeline: PipelineOption = None,
    skipped: Annotated[bool, typer.Option("--skipped", help="List what would be skipped, file by file.")] = False,
    as_json: JsonFlag = False,
    home: HomeOption = None,
) -> None:
    """Say what would be indexed of a folder, what would be skipped and why, and how large chunks come out.

    Nothing is indexed, and no service is needed.
    """
    outcomes, count, budget, manifests = _look(folder, model, pipeline, home)
    unused = [{"manifest": rule.manifest, "files": rule.shown} for rule in manifests.unused()]
    files, left_out = _told_apart(outcomes)
    if as_json:
        document = {
            "budget_tokens": budget,
            "files": [_file_document(one, count) for one in files],
            "skipped": [{"path": one.path, "reason": one.reason.value, "detail": one.detail} for one in left_out],
            "unused_rules": unused,
        }
        print(json.dumps(document, ensure_ascii=False, indent=2))
        return
    out = console()
    chunks = sum(len(one.extraction.chunks) for one in files)
    out.print(f"{folder}: {len(files)} files to index, {chunks} chunks of at most {budget} tokens", style="bold")
    out.print(_sizes(files, count))
    reasons = Counter(one.reason.value for one in left_out)
    if reasons:
        out.print("skipped: " + ", ".join(f"{n} {reason}" for reason, n in reasons.most_common()))
    if skipped:
        for one in left_out:
            out.print(Text.assemble((f"  {one.reason.value:<20}", "yellow"), f" {one.path}  ", (one.detail, "dim")))
    elif reasons:
        out.print("  --skipped lists them")
    for rule in unused:
        out.print(Text.assemble(("  rule fits no file   ", "yellow"), f" {rule['manifest']}: {rule['files']}"))
    for file in files:
        for note in file.extraction.notes:
            line = f":{note.line}" if note.line else ""
            out.print(Text.assemble((f"  {note.code:<20}", "yellow"), f" {file.path}{line}  ", (note.detail, "dim")))


def show_chunks(
    path: Annotated[Path, typer.Argument(help="File to look at.")],
    root: Annotated[
        Path | None,
        typer.Option("--root", help="Root of the source that the file is of [default: the folder with .git above it]."),
    ] = None,
    model: ModelOption = "",
    pipeline: PipelineOption = None,
    text: Annotated[bool, typer.Option("--text/--no-text", help="Show the text of each chunk.")] = True,
    as_json: JsonFlag = False,
    home: HomeOption = None,
) -> None:
    """Show the chunks that indexing would cut a file into."""
    file = path.resolve()
    if not file.is_file():
        fail(InvalidArgument(f"{path} is no file.", remedy="Name a file; `undercroft validate` looks at folders."))
    above = root.resolve() if root else _root_above(file)
    if not file.is_relative_to(above):
        fail(InvalidArgument(f"{path} is not below {above}.", remedy="Name a folder above the file with --root."))
    name = file.relative_to(above).as_posix()
    outcomes, count, budget, _ = _look(above, model, pipeline, home, only=name)
    files, left_out = _told_apart(outcomes)
    if not files:
        why = left_out[0] if left_out else None
        reason = f"{why.reason.value}: {why.detail}" if why else "a folder above it is left out, see `validate`"
        fail(InvalidArgument(f"{name} would not be indexed: {reason}.", remedy="`undercroft validate` shows the rest."))
    (found,) = files
    if as_json:
        print(json.dumps({"budget_tokens": budget, **_file_document(found, count)}, ensure_ascii=False, indent=2))
        return
    out = console()
    extraction = found.extraction
    out.print(f"{name}: {extraction.language}, {len(extraction.chunks)} chunks", style="bold", markup=False)
    for chunk in extraction.chunks:
        lines = f"{chunk.start_line}-{chunk.end_line}"
        out.print(
            Text.assemble(
                (f"{lines:<10}", "cyan"), f"{chunk.kind.value:<9}{_tokens(chunk, count):>5} tokens  ", chunk.title
            )
        )
        if text:
            out.print(Text(chunk.text, "dim"))
    for note in extraction.notes:
        out.print(Text.assemble((note.code, "yellow"), f" {note.detail}"))


def _look(
    folder: Path, model: str, pipeline: Path | None, home: Path | None, *, only: str = ""
) -> tuple[Iterable[Outcome], TokenCounter, int, Manifests]:
    """Return what becomes of the files of a folder, how tokens are counted, how many a chunk may have, and what its
    manifests say."""
    from services.ingest.extraction.tokens import token_counter
    from services.ingest.pipeline import load_pipeline
    from services.ingest.validating import validate

    try:
        place = Home.locate(home)
        tokenizer, budget = _model(place, check_model(model))
        outcomes, manifests = validate(
            folder,
            load_pipeline(pipeline),
            budget_tokens=budget,
            tokenizer=tokenizer,
            workers=cpu_threads(),
            data_dir=place.root if place.root.is_dir() else None,
            wanted=(lambda path: path == only) if only else lambda path: True,
        )
        return list(outcomes), token_counter(tokenizer), budget, manifests
    except UndercroftError as error:
        fail(error)


def _model(home: Home, name: str) -> tuple[Path | None, int]:
    """Return the tokenizer of a prepared model and what it reads of a text; estimates where there is no model."""
    from services.ingest.validating import BUDGET_WITHOUT_MODEL_TOKENS

    directory = home.models / (name or _DEFAULT_MODEL)
    if not (directory / "recipe.json").is_file():
        if name:
            raise InvalidArgument(
                f"There is no model {name!r} in {home.models}.", remedy="Name one of `undercroft models list`."
            )
        return None, BUDGET_WITHOUT_MODEL_TOKENS
    from services.embed.recipe import Purpose
    from services.embed.tokenization import TextTokenizer
    from services.embed.verify import read_recipe

    recipe = read_recipe(directory)
    used = TextTokenizer(directory, recipe).tokenize([""], Purpose.PASSAGE)[0].count
    return directory / "tokenizer.json", recipe.max_length_tokens - used


def _told_apart(outcomes: Iterable[Outcome]) -> tuple[list[Extracted], list[Skipped]]:
    from services.ingest.extraction.worker import Extracted

    files: list[Extracted] = []
    left_out: list[Skipped] = []
    for one in outcomes:
        if isinstance(one, Extracted):
            files.append(one)
        else:
            left_out.append(one)
    return files, left_out


def _root_above(file: Path) -> Path:
    return next((folder for folder in file.parents if (folder / ".git").exists()), file.parent)


def _sizes(files: Iterable[Extracted], count: TokenCounter) -> Table:
    by_language: defaultdict[str, list[int]] = defaultdict(list)
    of_language: Counter[str] = Counter()
    for file in files:
        of_language[file.extraction.language] += 1
        by_language[file.extraction.language] += [_tokens(chunk, count) for chunk in file.extraction.chunks]
    table = Table(box=None, pad_edge=False)
    for heading in ("language", "files", "chunks", "tokens, median", "most"):
        table.add_column(heading, justify="left" if heading == "language" else "right")
    for language, number in of_language.most_common():
        sizes = by_language[language] or [0]
        row = (str(number), str(len(by_language[language])), f"{statistics.median(sizes):.0f}", str(max(sizes)))
        table.add_row(language, *row)
    return table


def _tokens(chunk: Chunk, count: TokenCounter) -> int:
    from services.ingest.chunks import model_input

    return count(model_input(chunk.title, chunk.text))


def _file_document(file: Extracted, count: TokenCounter) -> dict[str, object]:
    extraction = file.extraction
    return {
        "path": file.path,
        "language": extraction.language,
        "encoding": file.file.encoding,
        "chunks": [
            {
                "key": chunk.key,
                "kind": chunk.kind.value,
                "title": chunk.title,
                "start_line": chunk.start_line,
                "end_line": chunk.end_line,
                "tokens": _tokens(chunk, count),
            }
            for chunk in extraction.chunks
        ],
        "metadata": {key: list(values) for key, values in extraction.metadata},
        "symbols": len(extraction.symbols),
        "references": len(extraction.references),
        "notes": [{"code": note.code, "detail": note.detail, "line": note.line} for note in extraction.notes],
    }
