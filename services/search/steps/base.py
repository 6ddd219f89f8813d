"""What a step is, what it is given, and the registry of their names."""

from __future__ import annotations

import abc
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pydantic

from services.core.db import Connection
from services.core.errors import InvalidArgument
from services.core.snapshots import Scope
from services.search.indexes import OpenGeneration
from services.search.queries import Candidate, Filter, Legs, Ranked


class QueryVectors(Protocol):
    """Gives the query's vector, as pgvector reads it and as numbers; one call per model and query."""

    async def vector(self, model_name: str, model_digest: str) -> QueryVector: ...


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query's vector: float32, little-endian, packed. Many are kept: a tuple of numbers takes eight times as much.

    ``probe_fingerprint`` and ``probe_cosine`` tell the kind of processor that made it, as embed says.
    """

    packed: bytes
    probe_fingerprint: str = ""
    probe_cosine: float = 1.0

    @property
    def values(self) -> npt.NDArray[np.float32]:
        """The numbers, of shape (dimensions,), read-only."""
        return np.frombuffer(self.packed, dtype="<f4")

    @property
    def text(self) -> str:
        """The vector the way pgvector reads it, exactly: nine digits tell every float32 from its neighbours."""
        numbers = self.values.tolist()
        return "[" + ",".join(["%.9g"] * len(numbers)) % tuple(numbers) + "]"


# Words that people write in code and not in prose: with an inner underscore, dot or capital. Digits are no mark: prose
# has python3 and md5.
_CODE = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?![\w.]*\w)")
_CODE_MARK = re.compile(r"\w_\w|^_|\w\.\w|[a-z][A-Z]|[A-Z]{2}[a-z]{2}")

# Qualified names are stored with dots. Other languages write a::b, a\b and, for Go's methods, (*a).b.
_SEPARATOR = re.compile(r"(?<=[\w>])(?:::|\\)(?=[\w~])")
_RECEIVER = re.compile(r"\(\*?(\w+)\)\.(?=\w)")


def dotted(text: str) -> str:
    """Write the qualified names in a text as they are stored: ``Client::new`` is ``Client.new``."""
    return _RECEIVER.sub(r"\1.", _SEPARATOR.sub(".", text))


def identifiers_in(text: str) -> tuple[str, ...]:
    """Return what a query names as code would: words with the marks of identifiers, or its only word."""
    text = dotted(text)
    words = [match[0] for match in _CODE.finditer(text)]
    if len(words) == 1 and words[0] == text.strip(" `()"):
        return tuple(words)
    return tuple(dict.fromkeys(word for word in words if _CODE_MARK.search(word)))


@dataclass(frozen=True, slots=True)
class Query:
    """What every step is given. ``targets`` are the scopes with their open generations, by project name.

    ``identifiers`` are the words that the query writes as code does; none in prose.
    """

    text: str
    identifiers: Sequence[str]
    terms: Sequence[str]
    # The word of the query that each term was made from.
    words: Mapping[str, str]
    restriction: Filter
    targets: Sequence[tuple[Scope, OpenGeneration]]
    connection: Connection
    vectors: QueryVectors


class StepSettings(pydantic.BaseModel):
    """Settings of a step, checked when its preset is read."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Step(abc.ABC):
    """A named step; subclasses register under ``name`` with their ``settings`` class."""

    name: ClassVar[str]
    settings_class: ClassVar[type[StepSettings]]

    _registry: ClassVar[dict[str, type[Step]]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            Step._registry[cls.name] = cls

    def __init__(self, settings: StepSettings) -> None:
        self.settings = settings


class LegStep(Step):
    """Finds candidates and adds them to the legs, best first, at most as many as it is set to."""

    @abc.abstractmethod
    async def find(self, query: Query, legs: Legs) -> None: ...


class FuseStep(Step):
    """Makes one ranking of the legs' candidates."""

    @abc.abstractmethod
    def fuse(self, legs: Mapping[str, Sequence[Candidate]], *, names_code: bool) -> list[Ranked]:
        """``names_code`` says that the query has identifiers, for which words weigh more than meaning."""


def step_names() -> list[str]:
    return sorted(Step._registry)


def build_step(name: str, settings: Mapping[str, object]) -> Step:
    """Make a step of a preset; InvalidArgument when there is no such step or setting."""
    kind = Step._registry.get(name)
    if kind is None:
        raise InvalidArgument(f"There is no step {name!r}.", remedy=f"Steps are: {', '.join(step_names())}.")
    try:
        return kind(kind.settings_class.model_validate(settings))
    except pydantic.ValidationError as error:
        raise InvalidArgument(f"Step {name!r} has wrong settings: {error}", remedy="Correct them.") from error


def in_order(candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """Return the best candidates in the total order."""
    return sorted(candidates, key=lambda one: (-one.score, one.id))[:limit]
