"""Several models by name: loaded once, kept within bounds, refused at once when they are not there."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.core.errors import DataLoss, InvalidArgument, NotFound, NotReady
from services.embed.preparation import PreparedModel
from services.embed.recipe import Purpose
from services.embed.registry import Registry


@pytest.fixture
def models(tmp_path: Path, tiny_model: PreparedModel) -> Path:
    for name in ("one", "two"):
        shutil.copytree(tiny_model.directory, tmp_path / "models" / name)
    return tmp_path / "models"


@pytest.fixture
async def registry(models: Path) -> AsyncIterator[Registry]:
    opened = Registry(models, threads=1, queue_capacity=100, max_loaded=1)
    yield opened
    await opened.close()


async def test_concurrent_calls_load_a_model_once(registry: Registry) -> None:
    loaded = await asyncio.gather(*(registry.get("one") for _ in range(5)))
    assert len({id(model) for model in loaded}) == 1


async def test_a_name_and_its_absolute_directory_are_one_model(registry: Registry, models: Path) -> None:
    assert await registry.get(str(models / "one")) is await registry.get("one")


async def test_the_least_recently_used_model_gives_way_and_comes_back(registry: Registry) -> None:
    await registry.get("one")
    await registry.get("two")
    assert [(await registry.describe(name)).is_loaded for name in ("one", "two")] == [False, True]
    again = await registry.get("one")
    tokens = again.verified.engine.tokenize(["x"], Purpose.PASSAGE)
    assert (await again.batcher.embed(tokens, Purpose.PASSAGE)).vectors.shape == (1, 32)


@pytest.mark.parametrize("name", ["org/model", "https://host/x", "..", ".", "", "/etc", "a\x00b", "one/../two", "/"])
async def test_what_is_no_model_of_the_directory_is_refused_at_once(registry: Registry, name: str) -> None:
    started = time.monotonic()
    with pytest.raises(InvalidArgument) as raised:
        await registry.get(name)
    assert raised.value.remedy
    assert time.monotonic() - started < 1


async def test_an_absent_model_is_not_found_and_the_known_ones_are_named(registry: Registry) -> None:
    with pytest.raises(NotFound, match="one, two"):
        await registry.get("three")


async def test_a_damaged_model_is_listed_with_its_reason_and_spoils_no_other(registry: Registry, models: Path) -> None:
    (models / "one" / "tokenizer.json").write_text("{}")
    with pytest.raises(DataLoss):
        await registry.get("one")
    assert "damaged" in (await registry.describe("one")).refusal
    assert (await registry.describe("two")).refusal == ""
    assert (await registry.get("two")).name == "two"


async def test_a_folder_that_is_no_model_is_listed_with_its_reason(registry: Registry, models: Path) -> None:
    (models / "half-copied").mkdir()
    (models / ".hidden").mkdir()
    assert registry.names() == ["half-copied", "one", "two"]
    assert "not a prepared model" in (await registry.describe("half-copied")).refusal


async def test_an_absent_models_directory_holds_no_models(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "absent", threads=1, queue_capacity=1, max_loaded=1)
    assert registry.names() == []
    with pytest.raises(NotFound):
        await registry.get("one")


async def test_a_models_directory_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    # What a mount of another user's folder comes to, whoever runs this test.
    (tmp_path / "models").write_text("no directory")
    registry = Registry(tmp_path / "models", threads=1, queue_capacity=1, max_loaded=1)
    for call in (registry.names, lambda: registry.resolve("one")):
        with pytest.raises(NotReady, match="can't read") as told:
            call()
        assert "a+rX" in told.value.remedy
    with pytest.raises(NotReady):
        await registry.describe_all()
    await registry.close()
