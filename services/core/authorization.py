"""The one seam where a caller's visible projects are resolved (DESIGN I10).

Every store call takes a ``Visible``; none reads a project that is not in it. Today every caller sees every project; an
authorizer that reads the caller's identity takes the place of ``AllowAll`` without any other change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from services.core.errors import NotFound


@dataclass(frozen=True, slots=True)
class Visible:
    """Projects that a caller may see. ``ids`` is None for all of them."""

    ids: frozenset[int] | None = None

    def sql(self) -> list[int] | None:
        """Return the parameter for ``(%(visible)s::bigint[] IS NULL OR project_id = ANY(%(visible)s))``."""
        return None if self.ids is None else sorted(self.ids)

    def check(self, project_id: int, name: str) -> None:
        """Fail as if the project did not exist when it is not visible: a refusal must not tell that it does."""
        if self.ids is not None and project_id not in self.ids:
            raise no_such_project(name)


def no_such_project(name: str) -> NotFound:
    return NotFound(
        f"There is no project {name!r}.",
        remedy="List the projects with `undercroft projects list`, or index a folder into it with `undercroft index`.",
        reason="PROJECT_NOT_FOUND",
        metadata={"project": name},
    )


class Authorizer(Protocol):
    """Resolves a call's metadata to the projects that its caller may see, once, at the edge."""

    async def visible(self, metadata: Mapping[str, str]) -> Visible: ...


class AllowAll:
    """Every caller sees every project."""

    async def visible(self, metadata: Mapping[str, str]) -> Visible:
        return Visible()
