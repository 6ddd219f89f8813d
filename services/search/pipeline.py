"""Search pipelines: presets as YAML files of named steps, and running one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import yaml

from services.core.errors import InvalidArgument
from services.search.queries import LegReport, Legs, Ranked
from services.search.steps import FuseStep, LegStep, build_step
from services.search.steps.base import Query


@dataclass(frozen=True, slots=True)
class Preset:
    """A checked pipeline: legs, then one fusing step. ``described`` are its steps as the file has them."""

    name: str
    description: str
    legs: tuple[LegStep, ...]
    fuse: FuseStep
    described: tuple[tuple[str, Mapping[str, object]], ...]


def load_presets(folder: Path | None) -> dict[str, Preset]:
    """Read the presets of the package and of ``folder``, which win; InvalidArgument names file and step."""
    texts: dict[str, str] = {}
    for packaged in resources.files("services.search").joinpath("presets").iterdir():
        if packaged.name.endswith(".yaml"):
            texts[packaged.name.removesuffix(".yaml")] = packaged.read_text()
    try:
        # Not by a pattern, to which a folder that is not there is an empty one.
        for path in sorted(folder.iterdir()) if folder else ():
            if path.suffix == ".yaml":
                texts[path.stem] = path.read_text()
    except OSError as error:
        raise InvalidArgument(
            f"The presets of {folder} can't be read: {error.strerror}.",
            remedy="Have UNDERCROFT_PRESETS_DIR name a folder that the service may read, or leave it out.",
        ) from error
    return {name: parse_preset(name, texts[name]) for name in sorted(texts)}


def parse_preset(name: str, text: str) -> Preset:
    """Read one preset."""
    try:
        content = yaml.safe_load(text)
        description, listed = content["description"], content["steps"]
        described = tuple((one["step"], {k: v for k, v in one.items() if k != "step"}) for one in listed)
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise InvalidArgument(
            f"Preset {name} can't be read: {error}",
            remedy="It has a description and steps, each with its name in `step`.",
        ) from error
    steps = [build_step(step, settings) for step, settings in described]
    legs = tuple(step for step in steps if isinstance(step, LegStep))
    fusing = [step for step in steps if isinstance(step, FuseStep)]
    if not legs or len(fusing) != 1 or steps != [*legs, *fusing]:
        raise InvalidArgument(f"Preset {name} must have legs and then one fusing step.", remedy="Put them in order.")
    return Preset(name, description, legs, fusing[0], described)


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a pipeline made of a query: one ranking, each text once, and how the legs went."""

    ranked: tuple[Ranked, ...]
    reports: tuple[LegReport, ...]
    steps_us: Mapping[str, int]


async def run(preset: Preset, query: Query) -> Ranking:
    """Run the steps of a preset. The ranking does not depend on how much of it a page shows."""
    legs = Legs()
    steps_us: dict[str, int] = {}
    for leg in preset.legs:
        with _timed(steps_us, leg.name):
            await leg.find(query, legs)
    with _timed(steps_us, preset.fuse.name):
        fused = _collapse(preset.fuse.fuse(legs.found, names_code=bool(query.identifiers)))
    return Ranking(tuple(fused), tuple(legs.reports), steps_us)


def _collapse(ranked: Sequence[Ranked]) -> Iterator[Ranked]:
    """Keep the best of each text: the hit lists the other places."""
    seen: set[tuple[int, bytes]] = set()
    for one in ranked:
        text = (one.candidate.project_id, one.candidate.text_hash)
        if text not in seen:
            seen.add(text)
            yield one


@contextmanager
def _timed(steps_us: dict[str, int], name: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        steps_us[name] = round((time.perf_counter() - start) * 1e6)
