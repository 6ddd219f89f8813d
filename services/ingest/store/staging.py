"""What a run has found so far, kept under the run until it publishes."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass

from psycopg.types.json import Jsonb

from services.core.db import Connection
from services.ingest.chunks import Note, Reference, Symbol
from services.ingest.file_settings import Metadata
from services.ingest.keys import fitted
from services.ingest.projects import Source
from services.ingest.store.kinds import DECISION_CHUNK, REFERENCE_KINDS


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A chunk with its hashes. ``fingerprint`` is None when the chunk is not embedded."""

    key: str
    kind: int
    language: str
    name: str
    qualified_name: str
    title: str
    embedded_title: str
    text: str
    start_line: int
    end_line: int
    content_hash: bytes
    text_hash: bytes
    fingerprint: bytes | None


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A new or changed file and all that was extracted from it. ``lines`` are its lines without line ends."""

    source: Source
    path: str
    language: str
    module: str
    content_hash: bytes
    size_bytes: int
    text: str
    text_hash: bytes
    lines: Sequence[str]
    chunks: Sequence[StagedChunk]
    symbols: Sequence[Symbol]
    references: Sequence[Reference]
    notes: Sequence[Note]
    settings: str
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class StagedBefore:
    """What an earlier attempt of a run has staged of a file."""

    content_hash: bytes
    module: str
    settings: str


# By (source id, path).
StagedFiles = dict[tuple[int, str], StagedBefore]

_OF_FILES = ("staged_chunks", "staged_symbols", "staged_edges", "staged_decisions")


async def clear(connection: Connection, run_id: int) -> None:
    """Drop all that a run has staged."""
    for table in ("staged_files", *_OF_FILES, "staged_vectors"):
        await connection.execute(f"DELETE FROM {table} WHERE run_id = %s", (run_id,))


async def drop_unused(connection: Connection, project_id: int, contents: Sequence[int], texts: Sequence[bytes]) -> None:
    """Drop those of the contents, by id, and of the file texts, by content hash, that nothing has any more."""
    await connection.execute(
        """
        DELETE FROM contents t WHERE t.project_id = %s AND t.id = ANY(%s)
          AND NOT EXISTS (SELECT FROM chunks c WHERE c.content_id = t.id)
          AND NOT EXISTS (SELECT FROM staged_chunks s WHERE s.content_id = t.id)
        """,
        (project_id, list(contents)),
    )
    await connection.execute(
        """
        DELETE FROM file_texts t WHERE t.project_id = %s AND t.text_hash = ANY(%s)
          AND NOT EXISTS (SELECT FROM files f WHERE f.project_id = t.project_id AND f.text_hash = t.text_hash)
          AND NOT EXISTS (SELECT FROM staged_files s WHERE s.text_hash = t.text_hash)
        """,
        (project_id, list(texts)),
    )


async def abandon(connection: Connection, project_id: int, run_id: int) -> None:
    """Drop all that a run has staged that will not publish it, and the contents and texts that nothing else has."""
    cursor = await connection.execute("SELECT DISTINCT content_id FROM staged_chunks WHERE run_id = %s", (run_id,))
    contents = [row["content_id"] for row in await cursor.fetchall()]
    cursor = await connection.execute(
        "SELECT DISTINCT text_hash FROM staged_files WHERE run_id = %s AND text_hash IS NOT NULL", (run_id,)
    )
    texts = [bytes(row["text_hash"]) for row in await cursor.fetchall()]
    await clear(connection, run_id)
    await drop_unused(connection, project_id, contents, texts)


async def resume(connection: Connection, project_id: int, run_id: int, pipeline: bytes) -> StagedFiles:
    """Return what an earlier attempt of the run has staged completely with the same pipeline; drop the rest."""
    cursor = await connection.execute(
        """
        UPDATE operations o SET staged_pipeline = %(pipeline)s
        FROM (SELECT id, staged_pipeline FROM operations WHERE id = %(run)s) before
        WHERE o.id = before.id RETURNING before.staged_pipeline = %(pipeline)s AS same
        """,
        {"run": run_id, "pipeline": pipeline},
    )
    row = await cursor.fetchone()
    if not (row and row["same"]):
        await abandon(connection, project_id, run_id)
        return {}
    cursor = await connection.execute(
        "SELECT source_id, path, content_hash, module, settings, complete FROM staged_files WHERE run_id = %s",
        (run_id,),
    )
    rows = await cursor.fetchall()
    await discard(connection, project_id, run_id, [(r["source_id"], r["path"]) for r in rows if not r["complete"]])
    return {
        (row["source_id"], row["path"]): StagedBefore(bytes(row["content_hash"]), row["module"], row["settings"])
        for row in rows
        if row["complete"]
    }


async def discard(connection: Connection, project_id: int, run_id: int, files: Sequence[tuple[int, str]]) -> None:
    """Drop what is staged of files, named by (source id, path), and what nothing else has of it."""
    parameters = {"run": run_id, "sources": [one[0] for one in files], "paths": [one[1] for one in files]}
    for table in _OF_FILES[1:]:
        await connection.execute(_discard(table, "path"), parameters)
    cursor = await connection.execute(_discard("staged_chunks", "content_id"), parameters)
    contents = {row["content_id"] for row in await cursor.fetchall()}
    cursor = await connection.execute(_discard("staged_files", "text_hash"), parameters)
    texts = {bytes(row["text_hash"]) for row in await cursor.fetchall() if row["text_hash"] is not None}
    await drop_unused(connection, project_id, sorted(contents), sorted(texts))


def _discard(table: str, column: str) -> str:
    return f"""
        DELETE FROM {table} s USING unnest(%(sources)s::bigint[], %(paths)s::text[]) AS d (source_id, path)
        WHERE s.run_id = %(run)s AND s.source_id = d.source_id AND s.path = d.path RETURNING s.{column}
    """


async def analyze(connection: Connection) -> None:
    """Tell the planner what is staged: autovacuum would do so minutes later."""
    await connection.execute("ANALYZE (SKIP_LOCKED) staged_files, staged_chunks, contents")


async def any_staged(connection: Connection, run_id: int) -> bool:
    """Tell whether the run has found any file new, changed or deleted."""
    cursor = await connection.execute("SELECT EXISTS (SELECT FROM staged_files WHERE run_id = %s) AS any", (run_id,))
    row = await cursor.fetchone()
    return bool(row and row["any"])


async def stage_deleted(connection: Connection, run_id: int, source_id: int, paths: Sequence[str]) -> None:
    """Stage the end of files."""
    await connection.execute(
        """
        INSERT INTO staged_files (run_id, source_id, path, state)
        SELECT %s, %s, path, 'deleted' FROM unnest(%s::text[]) AS path ORDER BY path
        ON CONFLICT (run_id, source_id, path) DO NOTHING
        """,
        (run_id, source_id, list(paths)),
    )


async def stage_files(
    connection: Connection, project_id: int, run_id: int, files: Sequence[StagedFile], to_be_mined: Collection[str]
) -> None:
    """Stage new and changed files with their texts, chunks, symbols and references.

    Files of a language that is ``to_be_mined`` are complete only once that has been done.
    """
    texts = {file.text_hash: file for file in files}
    async with connection.cursor() as cursor:
        await cursor.executemany(
            """
            INSERT INTO file_texts (project_id, text_hash, text_zlib, line_count) VALUES (%s, %s, %s, %s)
            ON CONFLICT DO NOTHING
            """,
            [
                (project_id, digest, zlib.compress(texts[digest].text.encode()), len(texts[digest].lines))
                for digest in sorted(texts)
            ],
        )
    async with connection.cursor() as cursor:
        columns = (
            "run_id, source_id, path, state, package, language, module, content_hash, size_bytes, text_hash, notes,"
            " settings, metadata, complete"
        )
        async with cursor.copy(f"COPY staged_files ({columns}) FROM STDIN") as copy:
            for file in files:
                place = (run_id, file.source.id, file.path, "present", file.source.package)
                content = (file.language, file.module, file.content_hash, file.size_bytes, file.text_hash)
                notes = Jsonb([asdict(note) for note in file.notes])
                said = (file.settings, Jsonb({key: list(values) for key, values in file.metadata}))
                await copy.write_row((*place, *content, notes, *said, file.language not in to_be_mined))
    await _stage_chunks(connection, project_id, run_id, files)
    await _stage_symbols(connection, run_id, files)
    await _stage_edges(connection, run_id, files)


async def _stage_chunks(connection: Connection, project_id: int, run_id: int, files: Sequence[StagedFile]) -> None:
    # One sorted statement: unsorted batches of two runs deadlock, DO NOTHING included.
    contents = sorted({c.content_hash: c for file in files for c in file.chunks}.values(), key=lambda c: c.content_hash)
    await connection.execute(
        """
        INSERT INTO contents (project_id, content_hash, text_hash, fingerprint, language, name, title, embedded_title,
                              text)
        SELECT %s, * FROM unnest(
            %s::bytea[], %s::bytea[], %s::bytea[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[]
        )
        ON CONFLICT (project_id, content_hash) DO NOTHING
        """,
        (
            project_id,
            [c.content_hash for c in contents],
            [c.text_hash for c in contents],
            [c.fingerprint for c in contents],
            [c.language for c in contents],
            [c.name for c in contents],
            [c.title for c in contents],
            [c.embedded_title for c in contents],
            [c.text for c in contents],
        ),
    )
    cursor = await connection.execute(
        "SELECT content_hash, id FROM contents WHERE project_id = %s AND content_hash = ANY(%s)",
        (project_id, [c.content_hash for c in contents]),
    )
    ids = {bytes(row["content_hash"]): row["id"] for row in await cursor.fetchall()}
    columns = "run_id, source_id, path, package, key, content_id, kind, language, qualified_name, start_line, end_line"
    async with connection.cursor() as cursor, cursor.copy(f"COPY staged_chunks ({columns}) FROM STDIN") as copy:
        for file in files:
            for c in file.chunks:
                place = (run_id, file.source.id, file.path, file.source.package, c.key, ids[c.content_hash], c.kind)
                await copy.write_row((*place, c.language, c.qualified_name, c.start_line, c.end_line))


async def _stage_symbols(connection: Connection, run_id: int, files: Iterable[StagedFile]) -> None:
    columns = (
        "run_id, source_id, path, package, qualified_name, name, kind, language, signature, summary, start_line,"
        " end_line"
    )
    async with connection.cursor() as cursor, cursor.copy(f"COPY staged_symbols ({columns}) FROM STDIN") as copy:
        for file in files:
            for s in file.symbols:
                place = (run_id, file.source.id, file.path, file.source.package, fitted(s.qualified_name))
                symbol = (fitted(s.name), s.kind.value, file.language, s.signature, s.summary)
                await copy.write_row((*place, *symbol, s.start_line, s.end_line))


async def _stage_edges(connection: Connection, run_id: int, files: Iterable[StagedFile]) -> None:
    columns = (
        "run_id, source_id, path, package, language, source_symbol, kind, target_symbol, target_name, resolved, line,"
        " line_text"
    )
    async with connection.cursor() as cursor, cursor.copy(f"COPY staged_edges ({columns}) FROM STDIN") as copy:
        for file in files:
            for r in file.references:
                place = (run_id, file.source.id, file.path, file.source.package, file.language)
                target, name = fitted(r.target), fitted(r.target.rpartition(".")[2])
                edge = (fitted(r.source), REFERENCE_KINDS[r.kind], target, name, r.resolved, r.line)
                await copy.write_row((*place, *edge, _line_text(file.lines, r.line)))


def _line_text(lines: Sequence[str], line: int, most_chars: int = 240) -> str:
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return text if len(text) <= most_chars else text[: most_chars - 1] + "…"


async def stage_removed_sources(connection: Connection, project_id: int, run_id: int) -> int:
    """Stage the end of files whose source was removed from the project; return how many.

    What the run had staged of such a source is dropped.
    """
    cursor = await connection.execute(
        """
        SELECT f.source_id, f.path FROM staged_files f
        WHERE f.run_id = %s AND NOT EXISTS (SELECT FROM sources s WHERE s.id = f.source_id)
        """,
        (run_id,),
    )
    staged = [(row["source_id"], row["path"]) for row in await cursor.fetchall()]
    if staged:
        await discard(connection, project_id, run_id, staged)
    cursor = await connection.execute(
        """
        INSERT INTO staged_files (run_id, source_id, path, state)
        SELECT %s, f.source_id, f.path, 'deleted' FROM files f
        WHERE f.project_id = %s AND f.died IS NULL AND NOT EXISTS (SELECT FROM sources s WHERE s.id = f.source_id)
        ORDER BY f.source_id, f.path
        """,
        (run_id, project_id),
    )
    return cursor.rowcount


async def known_decision_records(connection: Connection, project_id: int) -> list[tuple[int, str]]:
    """Return (source id, path) of the live decisions, for a run that can't have evidence mined."""
    cursor = await connection.execute(
        "SELECT source_id, path FROM decisions WHERE project_id = %s AND died IS NULL", (project_id,)
    )
    return [(row["source_id"], row["path"]) for row in await cursor.fetchall()]


async def mark_decision_records(connection: Connection, run_id: int, records: Sequence[tuple[int, str]]) -> None:
    """Give the chunks of decision records, named by (source id, path), their kind."""
    await connection.execute(
        """
        UPDATE staged_chunks c SET kind = %s
        FROM unnest(%s::bigint[], %s::text[]) AS r (source_id, path)
        WHERE c.run_id = %s AND c.source_id = r.source_id AND c.path = r.path
        """,
        (DECISION_CHUNK, [one[0] for one in records], [one[1] for one in records], run_id),
    )


async def complete(connection: Connection, run_id: int, source_id: int, paths: Sequence[str]) -> None:
    """Mark staged files as complete: another attempt of the run need not extract and mine them again."""
    await connection.execute(
        "UPDATE staged_files SET complete = true WHERE run_id = %s AND source_id = %s AND path = ANY(%s)",
        (run_id, source_id, list(paths)),
    )


async def stage_everything_deleted(connection: Connection, project_id: int, run_id: int) -> int:
    """Stage the end of every live file of a project; return how many."""
    cursor = await connection.execute(
        """
        INSERT INTO staged_files (run_id, source_id, path, state)
        SELECT %s, f.source_id, f.path, 'deleted' FROM files f
        WHERE f.project_id = %s AND f.died IS NULL ORDER BY f.source_id, f.path
        """,
        (run_id, project_id),
    )
    return cursor.rowcount
