"""What of a table a query may see: one generation of a project, and what passes the filter."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from services.core.snapshots import Scope
from services.search.queries import Filter, Place

LIVES = (
    "{0}.project_id = %(project)s AND {0}.born <= %(generation)s AND ({0}.died IS NULL OR {0}.died > %(generation)s)"
)
CHUNK_LIVES = LIVES.format("c")
# No typed parameter is NULL-tested in vain: a condition stands only where the filter has values.
_CONDITIONS = {
    "packages": "{0}.package = ANY(%(packages)s)",
    "path_globs": "{0}.path ~ ANY(%(path_globs)s)",
    "languages": "{0}.language = ANY(%(languages)s)",
    "kinds": "{0}.kind = ANY(%(kinds)s)",
    "metadata": f"""EXISTS (
        SELECT FROM files m WHERE m.project_id = %(project)s AND m.source_id = {{0}}.source_id AND m.path = {{0}}.path
          AND m.metadata <> '{{{{}}}}' AND {LIVES.format("m")} AND (
              SELECT bool_and(m.metadata ? k.key AND (k.is_any OR m.metadata -> k.key ?| k.listed))
              FROM jsonb_to_recordset(%(metadata)s::jsonb) AS k (key text, is_any boolean, listed text[])
          )
    )""",
}
# Of those, what symbols, references and files have too.
OF_FILES = ("packages", "path_globs", "languages", "metadata")


def glob_regex(glob: str) -> str:
    """Translate a path glob to a Postgres regular expression that matches the whole path."""
    # Any number of ** in a row means what one does, and costs what one does.
    glob = re.sub(r"(\*\*/)+", "**/", re.sub(r"\*{3,}", "**", glob))
    out, i = "", 0
    while i < len(glob):
        char = glob[i]
        if glob.startswith("**/", i):
            out, i = out + "(?:.*/)?", i + 3
        elif glob.startswith("**", i):
            out, i = out + ".*", i + 2
        elif char == "*":
            out, i = out + "[^/]*", i + 1
        elif char == "?":
            out, i = out + "[^/]", i + 1
        elif char == "[" and (end := glob.find("]", i + 2)) > 0:
            body = glob[i + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out, i = out + "[" + ("^" + body[1:] if body.startswith("!") else body) + "]", end + 1
        else:
            out, i = out + re.sub(r"([^\w/ ])", r"\\\1", char), i + 1
    return f"^{out}$"


def parameters(scope: Scope, restriction: Filter) -> dict[str, Any]:
    """Return the values of what the conditions name."""
    return {
        "project": scope.project_id,
        "generation": scope.generation,
        "packages": list(restriction.packages),
        "path_globs": [glob_regex(glob) for glob in restriction.path_globs],
        "languages": list(restriction.languages),
        "kinds": list(restriction.kinds),
        "metadata": json.dumps(
            [{"key": key, "is_any": not values, "listed": list(values)} for key, values in restriction.metadata]
        ),
    }


def where(restriction: Filter, alias: str, fields: Sequence[str] = tuple(_CONDITIONS)) -> str:
    """Return the conditions of a filter on a table, each preceded by AND."""
    return "".join(f" AND {_CONDITIONS[field].format(alias)}" for field in fields if getattr(restriction, field))


def place(scope: Scope, row: Mapping[str, Any]) -> Place:
    """Return the place of a row of chunks, symbols or edges."""
    return Place(scope.project, row["package"], row["path"], row["start_line"], row["end_line"])
