"""The models of one directory: found by name, checked when loaded, kept in memory while they are used.

A model's directory may be replaced while the service runs; the next call sees it. Nothing is ever written there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from services.core.errors import DataLoss, InvalidArgument, NotFound, NotReady, UndercroftError
from services.core.names import MODEL_NAME, MODELS_FOLDER
from services.embed.batching import Batcher
from services.embed.directory import require_model_directory
from services.embed.manifest import MANIFEST_NAME, Manifest
from services.embed.recipe import Recipe
from services.embed.verify import ProbeResult, VerifiedModel, check_sizes, read_manifest, read_recipe, verify

log = structlog.get_logger(__name__)

# A refusal is remembered this long, so that callers who try again do not make the service hash the files each time.
_REFUSAL_KEPT_S = 5.0
_MAX_CAUSE_CHARS = 200

Signature = tuple[int, int, int]
FileSignature = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class ModelState:
    """What is known about a model without loading it; ``refusal`` says why it cannot be used."""

    name: str
    recipe: Recipe | None
    manifest: Manifest | None
    probe: ProbeResult | None
    is_loaded: bool
    refusal: str


@dataclass(slots=True)
class LoadedModel:
    """A model in memory."""

    name: str
    verified: VerifiedModel
    batcher: Batcher
    signature: Signature | None
    used_at: float = field(default_factory=time.monotonic)

    @property
    def recipe(self) -> Recipe:
        return self.verified.recipe

    @property
    def digest(self) -> str:
        return self.verified.manifest.digest


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a model was refused, for as long as its files are the same; ``until`` it is not even tried again."""

    error: UndercroftError
    files: frozenset[FileSignature]
    until: float

    def holds(self, directory: Path) -> bool:
        return self.files == _files(directory)


class Registry:
    """Loads, keeps and drops models. Belongs to one event loop."""

    def __init__(self, directory: Path, *, threads: int, queue_capacity: int, max_loaded: int) -> None:
        self.directory = directory
        self.threads = threads
        self.queue_capacity = queue_capacity
        self._max_loaded = max_loaded
        self._slots = asyncio.Semaphore(threads)
        self._loaded: dict[str, LoadedModel] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        # Apart from the threads that serve texts: reading a directory may take as long as its volume wants.
        self._describing = ThreadPoolExecutor(1, thread_name_prefix="describe")
        self._verifying = ThreadPoolExecutor(1, thread_name_prefix="verify")
        self._loading = ThreadPoolExecutor(2, thread_name_prefix="load")

    def resolve(self, model: str) -> tuple[str, Path]:
        """Return name and directory of a model that is named, or given as an absolute path below the models directory.

        Raises ``InvalidArgument`` for anything that is neither, a hub id above all, and ``NotFound`` when there is no
        such directory; both at once, without asking anybody. ``NotReady`` when the models directory can't be read.
        """
        path = Path(model)
        if path.is_absolute():
            if path.parent != self.directory or not MODEL_NAME.fullmatch(path.name):
                raise InvalidArgument(
                    f"{model} is not below the models directory.",
                    remedy=f"Copy the model into {self.directory} and name it by its folder.",
                    reason="MODEL_NOT_A_DIRECTORY",
                )
            model = path.name
        if not MODEL_NAME.fullmatch(model):
            raise InvalidArgument(
                f"{model!r} is no name of a model directory, and models are never fetched by their id.",
                remedy=f"Copy the prepared model into {self.directory} and name it by its folder.",
                reason="MODEL_NOT_A_DIRECTORY",
            )
        try:
            is_there = (self.directory / model).is_dir()
        except OSError as error:
            raise self._unreadable(error) from error
        if not is_there:
            known = ", ".join(self.names()) or "none"
            raise NotFound(
                f"There is no model {model!r}. Known models: {known}.",
                remedy=f"Put it, prepared, into {MODELS_FOLDER}; the service sees that folder as {self.directory}.",
                reason="MODEL_NOT_FOUND",
                metadata={"model": model},
            )
        return model, self.directory / model

    def names(self) -> list[str]:
        """Name every folder of the models directory that looks like a model, sorted; NotReady if it can't be read."""
        try:
            children = list(self.directory.iterdir())
            return sorted(path.name for path in children if MODEL_NAME.fullmatch(path.name) and path.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> NotReady:
        cause = error.strerror or type(error).__name__
        log.error("the models directory can't be read", directory=str(self.directory), cause=cause)
        return NotReady(
            f"The embed service can't read its models folder {self.directory}: {cause}.",
            remedy=f"Let user {os.getuid()} and group {os.getgid()} read it and what is in it: `chmod -R a+rX` on"
            " the folder that is mounted there.",
            reason="MODELS_UNREADABLE",
        )

    def ready(self, model: str) -> LoadedModel | None:
        """Return a model that is in memory and whose directory is still the same; None when it has to be loaded."""
        name, _ = self.resolve(model)
        loaded = self._current(name)
        if loaded is not None:
            loaded.used_at = time.monotonic()
        return loaded

    def _current(self, name: str) -> LoadedModel | None:
        """Return a model that is in memory, unless its directory is another one by now."""
        loaded = self._loaded.get(name)
        return loaded if loaded is not None and loaded.signature == _signature(self.directory / name) else None

    def _refuse(self, name: str, directory: Path, error: UndercroftError) -> None:
        until = time.monotonic() + _REFUSAL_KEPT_S
        self._refusals[name] = _Refusal(error=error, files=_files(directory), until=until)

    async def get(self, model: str) -> LoadedModel:
        """Return a model that is ready, loading it when it is not, or when its directory was replaced."""
        name, directory = self.resolve(model)
        async with self._locks.setdefault(name, asyncio.Lock()):
            loaded = self.ready(name)
            if loaded is not None:
                return loaded
            refusal = self._refusals.get(name)
            if refusal is not None and refusal.holds(directory) and time.monotonic() < refusal.until:
                raise refusal.error
            return await self._load(name, directory)

    async def check(self, model: str) -> ModelState:
        """Verify a model directory from its files on, whether or not it is loaded, without keeping it in memory."""
        name, directory = self.resolve(model)
        try:
            verified = await self._verify(self._verifying, directory, threads=1)
        except UndercroftError as error:
            self._refuse(name, directory, error)
            return self._describe(name, refusal=str(error))
        self._refusals.pop(name, None)
        return ModelState(
            name=name,
            recipe=verified.recipe,
            manifest=verified.manifest,
            probe=verified.probe,
            is_loaded=self._current(name) is not None,
            refusal="",
        )

    @staticmethod
    async def _verify(threads_of: ThreadPoolExecutor, directory: Path, *, threads: int) -> VerifiedModel:
        """Verify on a thread; what no check foresaw is an error of the directory too, in words."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(threads_of, lambda: verify(directory, threads=threads))
        except UndercroftError:
            raise
        except Exception as error:
            log.exception("a model failed in a way that no check foresaw", model=directory.name)
            raise DataLoss(
                f"{directory.name} can't be loaded: {type(error).__name__}: {str(error)[:_MAX_CAUSE_CHARS]}.",
                remedy="Check that the service may read all of it, or prepare and copy it again.",
                reason="MODEL_UNLOADABLE",
            ) from error

    async def describe(self, model: str) -> ModelState:
        """Tell what is known about one model; reads its manifest and recipe, hashes nothing."""
        name = self.resolve(model)[0]
        return await asyncio.get_running_loop().run_in_executor(self._describing, self._describe, name)

    async def describe_all(self) -> tuple[ModelState, ...]:
        """Tell what is known about every model, one that is damaged among them."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._describing, lambda: tuple(map(self._describe, self.names())))

    async def unload(self, model: str) -> None:
        """Take a model out of memory; texts that wait for it fail with ``Unavailable``. Its directory may be gone."""
        name = model if model in self._loaded else self.resolve(model)[0]
        async with self._locks.setdefault(name, asyncio.Lock()):
            await self._drop(name)

    async def close(self) -> None:
        """Take every model out of memory."""
        for name in list(self._loaded):
            await self._drop(name)
        for pool in (self._describing, self._verifying, self._loading):
            pool.shutdown(wait=False, cancel_futures=True)

    @property
    def queue_length(self) -> int:
        """Texts that wait now, over all models."""
        return sum(loaded.batcher.queue_length for loaded in self._loaded.values())

    async def _load(self, name: str, directory: Path) -> LoadedModel:
        started = time.perf_counter()
        signature = _signature(directory)
        try:
            verified = await self._verify(self._loading, directory, threads=self.threads)
        except UndercroftError as error:
            self._refuse(name, directory, error)
            log.error("model refused", model=name, cause=str(error), reason=error.reason)
            raise
        self._refusals.pop(name, None)
        await self._drop(name)
        await self._make_room()
        loaded = LoadedModel(
            name=name,
            verified=verified,
            batcher=Batcher(verified.engine, capacity=self.queue_capacity, slots=self._slots),
            signature=signature,
        )
        self._loaded[name] = loaded
        log.info(
            "model loaded",
            model=name,
            digest=verified.manifest.digest,
            threads=self.threads,
            seconds=round(time.perf_counter() - started, 3),
            probe_cosine=round(verified.probe.min_cosine, 6),
            rows_are_independent=verified.engine.rows_are_independent,
        )
        if verified.probe.has_drifted:
            log.warning(
                "this processor's vectors differ from those of the machine that prepared the model",
                model=name,
                probe_cosine=round(verified.probe.min_cosine, 6),
                prepared_on=verified.manifest.processor,
                remedy="Index and search on processors of one kind, or prepare the model on this one.",
            )
        return loaded

    async def _make_room(self) -> None:
        while len(self._loaded) >= self._max_loaded:
            idle = min(self._loaded.values(), key=lambda loaded: (loaded.batcher.queue_length > 0, loaded.used_at))
            log.info("model unloaded to make room", model=idle.name)
            await self._drop(idle.name)

    async def _drop(self, name: str) -> None:
        loaded = self._loaded.pop(name, None)
        if loaded is not None:
            await loaded.batcher.close()

    def _describe(self, name: str, *, refusal: str = "") -> ModelState:
        """Runs on a thread: what it reads of this registry are single values."""
        loaded = self._current(name)
        known = self._refusals.get(name)
        if not refusal and known is not None and known.holds(self.directory / name):
            refusal = str(known.error)
        if loaded is not None:
            # It serves from memory, whatever has become of its files since.
            return ModelState(
                name=name,
                recipe=loaded.recipe,
                manifest=loaded.verified.manifest,
                probe=loaded.verified.probe,
                is_loaded=True,
                refusal=refusal,
            )
        recipe: Recipe | None = None
        manifest: Manifest | None = None
        try:
            directory = require_model_directory(self.directory / name)
            manifest = read_manifest(directory)
            check_sizes(directory, manifest)
            recipe = read_recipe(directory)
        except UndercroftError as error:
            refusal = refusal or str(error)
        except Exception as error:
            # One directory must not keep the others from being listed.
            refusal = refusal or f"It can't be read: {type(error).__name__}: {str(error)[:_MAX_CAUSE_CHARS]}."
        return ModelState(name=name, recipe=recipe, manifest=manifest, probe=None, is_loaded=False, refusal=refusal)


def _files(directory: Path) -> frozenset[FileSignature]:
    """Tell the files of a directory from those that take their places, by names, inodes, sizes and times."""
    found = set()
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                status = os.stat(path)
                found.add((path, status.st_ino, status.st_size, status.st_mtime_ns))
    return frozenset(found)


def _signature(directory: Path) -> Signature | None:
    """Tell one manifest file from another that took its place; None while there is none."""
    try:
        status = (directory / MANIFEST_NAME).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
