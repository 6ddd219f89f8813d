"""Start the ingest service: ``python -m services.ingest``."""

from __future__ import annotations

import contextlib
import gc
import shutil
from collections.abc import Callable
from dataclasses import replace

import grpc.aio
from google.longrunning import operations_pb2, operations_pb2_grpc
from undercroft.ingest.v1 import (
    index_service_pb2,
    index_service_pb2_grpc,
    project_service_pb2,
    project_service_pb2_grpc,
)

from services.core.authorization import AllowAll
from services.core.cpu import cpu_threads
from services.core.db import Database, check_schema
from services.core.grpc import serve
from services.core.notifications import OPERATIONS, Notifications
from services.core.pages import PageTokens, load_key
from services.core.sidecars import Volume
from services.core.starting import start
from services.ingest.archives.unpacking import ArchiveLimits
from services.ingest.caching import EmbeddingCache
from services.ingest.declaring import Declarations
from services.ingest.embedder import Embedder
from services.ingest.evidence import EvidenceSink
from services.ingest.extracting import Extracting
from services.ingest.git.checkouts import Checkouts, GitSettings
from services.ingest.git.tree import Limits
from services.ingest.housekeeping import Housekeeper
from services.ingest.observing import Observer
from services.ingest.opening import Opener
from services.ingest.pipeline import load_pipeline
from services.ingest.repairing import Repairs
from services.ingest.runner import Runner
from services.ingest.server import IndexServicer, OperationsServicer, ProjectServicer
from services.ingest.service import IngestService
from services.ingest.settings import IngestSettings
from services.ingest.sidecars import SidecarBuilder
from services.ingest.stages.context import EmbedSettings, Workshop
from services.ingest.sweeping import Sweeper
from services.ingest.uploads import UploadLimits, Uploads
from services.ingest.watching import Watcher

_MAX_COMMIT_FILES = 200_000


async def main(settings: IngestSettings) -> None:
    url = settings.database_url.get_secret_value()
    async with contextlib.AsyncExitStack() as stack:
        database = Database(url, size=settings.database_pool_size, prepare=settings.database_prepare)
        await database.open()
        stack.push_async_callback(database.close)
        await check_schema(database)
        # Sources are known by where they really are, and so are the folders that archives are unpacked into.
        local = settings.local_dir.resolve()
        volume = Volume(settings.sidecar_dir)
        builder = SidecarBuilder(url, volume, local / "ingest")
        builder.clean()
        unpacked = local / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        pipeline = load_pipeline(settings.pipeline_file)
        embedder, evidence = (
            Embedder(settings.embed_target, settings.embed_patience_s),
            EvidenceSink(settings.decisions_target),
        )
        stack.push_async_callback(embedder.close)
        stack.push_async_callback(evidence.close)
        extracting = Extracting(pipeline, settings.models_dir, settings.extraction_workers or min(4, cpu_threads()))
        stack.callback(extracting.close)
        notifications = Notifications(url, OPERATIONS)
        await stack.enter_async_context(notifications.running())
        distributions = ArchiveLimits(pipeline.discovery.caps)
        unpacked_uploads = replace(
            distributions,
            max_total_bytes=settings.upload_max_unpacked_bytes,
            max_members=settings.upload_max_files,
            # With headers, and with what is left out.
            max_stream_bytes=2 * settings.upload_max_unpacked_bytes,
        )
        checkouts = Checkouts(
            GitSettings(
                hosts=tuple(host.strip() for host in settings.git_hosts.split(",") if host.strip()),
                mirrors=local / "git",
                configuration=settings.git_config_file,
                timeout_s=settings.git_timeout_s,
                limits=Limits(
                    caps=pipeline.discovery.caps,
                    max_total_bytes=settings.upload_max_unpacked_bytes,
                    max_files=_MAX_COMMIT_FILES,
                ),
                own=tuple(
                    folder.resolve()
                    for folder in (settings.data_dir, local, settings.sidecar_dir)
                    if folder is not None
                ),
            )
        )
        uploads = Uploads(
            database,
            settings.sidecar_dir,
            local,
            UploadLimits(settings.upload_max_bytes, unpacked_uploads),
        )
        workshop = Workshop(
            database=database,
            embedder=embedder,
            evidence=evidence,
            extracting=extracting,
            builder=builder,
            pipeline=pipeline,
            data_dir=settings.data_dir,
            declarations=Declarations(settings.wheels_dir),
            opener=Opener(checkouts, distributions=distributions, uploads=unpacked_uploads),
            uploads=uploads,
            unpacked_dir=unpacked,
            embed=EmbedSettings(settings.embed_batch_texts, settings.embed_concurrency),
        )
        sweeper = Sweeper(
            database, volume, builder, retention_s=settings.retention_s, orphan_grace_s=settings.orphan_grace_s
        )
        runner = Runner(
            workshop,
            url,
            sweeper,
            notifications,
            concurrency=settings.run_concurrency,
            poll_s=settings.poll_s,
        )
        service = IngestService(
            database,
            volume,
            embedder,
            notifications,
            data_dir=settings.data_dir,
            wheels_dir=settings.wheels_dir,
            checkouts=checkouts,
            default_model=settings.default_model,
        )
        observer = Observer(database, pipeline, settings.data_dir)
        repairs = Repairs(database, url, volume, builder)
        housekeeper = Housekeeper(
            database,
            repairs,
            sweeper,
            uploads,
            checkouts,
            interval_s=settings.housekeeping_interval_s,
            verify_interval_s=settings.verify_interval_s,
            orphan_grace_s=settings.orphan_grace_s,
            cache_retention_s=settings.cache_retention_s,
        )
        await stack.enter_async_context(runner.running())
        await stack.enter_async_context(housekeeper.running())
        await stack.enter_async_context(Watcher(database, notifications, settings.data_dir).running())
        cache = EmbeddingCache(
            database,
            local / "imports",
            settings.cache_retention_s,
            url=url,
            prepare=settings.database_prepare,
        )
        edge = (AllowAll(), PageTokens(load_key(settings.secrets_dir)))
        register = _register(
            ProjectServicer(service, *edge),
            IndexServicer(service, observer, repairs, cache, uploads, *edge),
            OperationsServicer(service, *edge),
        )
        # What is there now stays: collections that a run's many values cause need not walk through it (100 ms each).
        gc.collect()
        gc.freeze()
        await serve("ingest", settings, register, needs={"database": database.ping})


def _register(
    projects: ProjectServicer, index: IndexServicer, operations: OperationsServicer
) -> Callable[[grpc.aio.Server], list[str]]:
    def register(server: grpc.aio.Server) -> list[str]:
        project_service_pb2_grpc.add_ProjectServiceServicer_to_server(projects, server)
        index_service_pb2_grpc.add_IndexServiceServicer_to_server(index, server)
        operations_pb2_grpc.add_OperationsServicer_to_server(operations, server)
        return [
            project_service_pb2.DESCRIPTOR.services_by_name["ProjectService"].full_name,
            index_service_pb2.DESCRIPTOR.services_by_name["IndexService"].full_name,
            operations_pb2.DESCRIPTOR.services_by_name["Operations"].full_name,
        ]

    return register


if __name__ == "__main__":
    start("ingest", IngestSettings, main)
