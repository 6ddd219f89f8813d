"""Transport of ingest: proto messages in, use cases, proto messages out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc.aio
from google.longrunning import operations_pb2, operations_pb2_grpc
from google.protobuf import empty_pb2, timestamp_pb2
from undercroft.common.v1 import common_pb2
from undercroft.ingest.v1 import (
    index_run_pb2,
    index_service_pb2,
    project_pb2,
    project_service_pb2,
    project_service_pb2_grpc,
)

from services.core.authorization import Authorizer, Visible
from services.core.errors import InvalidArgument, Unimplemented
from services.core.grpc import as_status, metadata_of
from services.core.names import (
    operation_name,
    parse_operation,
    parse_project,
    parse_source,
    project_name,
    source_name,
)
from services.core.pages import PageTokens
from services.ingest import service as use_cases
from services.ingest.cache_server import CacheServicer
from services.ingest.caching import EmbeddingCache
from services.ingest.observing import Observer
from services.ingest.projects import WHEEL, Degradation, Observation, Project, Source
from services.ingest.repairing import Repairs
from services.ingest.reports import RunReport
from services.ingest.service import IngestService, MethodStatus, Status
from services.ingest.store.operations import Operation
from services.ingest.store.projects import ProjectChanges
from services.ingest.tiers import Tier, TierRule

_DEFAULT_PAGE, _LARGEST_PAGE = 100, 1000
_LONGEST_WAIT_S = 3600.0

_STAGES = {
    "queued": index_run_pb2.INDEX_STAGE_QUEUED,
    "discover": index_run_pb2.INDEX_STAGE_DISCOVER,
    "extract": index_run_pb2.INDEX_STAGE_EXTRACT,
    "decisions": index_run_pb2.INDEX_STAGE_DECISIONS,
    "embed": index_run_pb2.INDEX_STAGE_EMBED,
    "sidecars": index_run_pb2.INDEX_STAGE_SIDECARS,
    "publish": index_run_pb2.INDEX_STAGE_PUBLISH,
    "done": index_run_pb2.INDEX_STAGE_DONE,
}
_TIERS = {
    Tier.FULL: project_pb2.TIER_FULL,
    Tier.DOC_PAGES: project_pb2.TIER_DOC_PAGES,
    Tier.NONE: project_pb2.TIER_NONE,
}
_STATES = {
    use_cases.READY: common_pb2.METHOD_STATE_READY,
    use_cases.STALE: common_pb2.METHOD_STATE_STALE,
    use_cases.DEGRADED: common_pb2.METHOD_STATE_DEGRADED,
    use_cases.BROKEN: common_pb2.METHOD_STATE_BROKEN,
    use_cases.ABSENT: common_pb2.METHOD_STATE_ABSENT,
}

Context = grpc.aio.ServicerContext[Any, Any]


class ProjectServicer(project_service_pb2_grpc.ProjectServiceServicer):
    def __init__(self, service: IngestService, authorizer: Authorizer, pages: PageTokens) -> None:
        self._service = service
        self._authorizer = authorizer
        self._pages = pages

    async def CreateProject(
        self, request: project_service_pb2.CreateProjectRequest, context: Context
    ) -> project_pb2.Project:
        wanted = ProjectChanges(
            display_name=request.project.display_name,
            embedding_model=request.project.embedding_model if request.HasField("project") else None,
            tiers=_rules(request.project.tiers),
            index_dependencies=request.project.index_dependencies,
        )
        return _project(await self._service.create_project(request.project_id, wanted))

    async def GetProject(self, request: project_service_pb2.GetProjectRequest, context: Context) -> project_pb2.Project:
        visible = await self._visible(context)
        return _project(await self._service.get_project(parse_project(request.name), visible))

    async def ListProjects(
        self, request: project_service_pb2.ListProjectsRequest, context: Context
    ) -> project_service_pb2.ListProjectsResponse:
        size = _page_size(request.page_size)
        after = self._after(request, "")
        found = await self._service.list_projects(await self._visible(context), after, size + 1)
        token = self._pages.seal(request, {"after": found[size - 1].name}) if len(found) > size else ""
        return project_service_pb2.ListProjectsResponse(
            projects=[_project(one) for one in found[:size]], next_page_token=token
        )

    async def UpdateProject(
        self, request: project_service_pb2.UpdateProjectRequest, context: Context
    ) -> project_pb2.Project:
        fields = ("display_name", "embedding_model", "tiers", "index_dependencies")
        wanted = list(request.update_mask.paths) or list(fields)
        if unknown := sorted(set(wanted) - set(fields)):
            raise InvalidArgument(
                f"{', '.join(unknown)} can't be updated.", remedy=f"The mask may name {' and '.join(fields)}."
            )
        project = request.project
        updates = ProjectChanges(
            display_name=project.display_name if "display_name" in wanted else None,
            embedding_model=project.embedding_model if "embedding_model" in wanted else None,
            tiers=_rules(project.tiers) if "tiers" in wanted else None,
            index_dependencies=project.index_dependencies if "index_dependencies" in wanted else None,
        )
        visible = await self._visible(context)
        return _project(await self._service.update_project(parse_project(request.project.name), visible, updates))

    async def DeleteProject(
        self, request: project_service_pb2.DeleteProjectRequest, context: Context
    ) -> empty_pb2.Empty:
        await self._service.delete_project(parse_project(request.name), await self._visible(context))
        return empty_pb2.Empty()

    async def GetProjectStatus(
        self, request: project_service_pb2.GetProjectStatusRequest, context: Context
    ) -> project_pb2.ProjectStatus:
        return _status(await self._service.status(parse_project(request.name), await self._visible(context)))

    async def CreateSource(
        self, request: project_service_pb2.CreateSourceRequest, context: Context
    ) -> project_pb2.Source:
        origin = request.source.WhichOneof("origin")
        where = (
            parse_project(request.parent),
            await self._visible(context),
            request.source_id,
            request.source.package,
        )
        if origin == "folder":
            project, source = await self._service.create_folder_source(*where, request.source.folder.path)
        elif origin == "wheel":
            project, source = await self._service.create_wheel_source(*where, request.source.wheel.file)
        else:
            raise InvalidArgument(
                f"A source of a {origin} is not available in this release." if origin else "The source has no origin.",
                remedy="Give it a folder that the ingest service can read, or a file of the wheel directory.",
                reason="ORIGIN_NOT_AVAILABLE",
            )
        return _source(project.name, source)

    async def GetSource(self, request: project_service_pb2.GetSourceRequest, context: Context) -> project_pb2.Source:
        project, source = parse_source(request.name)
        return _source(project, await self._service.get_source(project, await self._visible(context), source))

    async def ListSources(
        self, request: project_service_pb2.ListSourcesRequest, context: Context
    ) -> project_service_pb2.ListSourcesResponse:
        size = _page_size(request.page_size)
        project = parse_project(request.parent)
        after = self._after(request, "")
        found = await self._service.list_sources(project, await self._visible(context), after, size + 1)
        token = self._pages.seal(request, {"after": found[size - 1].name}) if len(found) > size else ""
        return project_service_pb2.ListSourcesResponse(
            sources=[_source(project, one) for one in found[:size]], next_page_token=token
        )

    async def DeleteSource(self, request: project_service_pb2.DeleteSourceRequest, context: Context) -> empty_pb2.Empty:
        project, source = parse_source(request.name)
        await self._service.delete_source(project, await self._visible(context), source)
        return empty_pb2.Empty()

    def _after(self, request: Any, first: str) -> str:
        return str(self._pages.open(request, request.page_token)["after"]) if request.page_token else first

    async def _visible(self, context: Context) -> Visible:
        return await self._authorizer.visible(metadata_of(context))


class IndexServicer(CacheServicer):
    def __init__(
        self,
        service: IngestService,
        observer: Observer,
        repairs: Repairs,
        cache: EmbeddingCache,
        authorizer: Authorizer,
        pages: PageTokens,
    ) -> None:
        super().__init__(cache, authorizer)
        self._service = service
        self._observer = observer
        self._repairs = repairs
        self._authorizer = authorizer
        self._pages = pages

    async def RunIndex(self, request: index_service_pb2.RunIndexRequest, context: Context) -> operations_pb2.Operation:
        asked = {"verify": request.verify, "force": request.force, "re_embed": request.re_embed}
        options = {name: True for name, wanted in asked.items() if wanted}
        visible = await self._visible(context)
        return _operation(
            await self._service.run_index(parse_project(request.project), visible, options, request.request_id)
        )

    async def WatchIndexRun(
        self, request: index_service_pb2.WatchIndexRunRequest, context: Context
    ) -> AsyncIterator[index_service_pb2.WatchIndexRunResponse]:
        project, operation_id = parse_operation(request.operation)
        async for operation in self._service.watch(project, operation_id, await self._visible(context)):
            yield index_service_pb2.WatchIndexRunResponse(report=_report(operation), done=operation.done)

    async def ListSkippedFiles(
        self, request: index_service_pb2.ListSkippedFilesRequest, context: Context
    ) -> index_service_pb2.ListSkippedFilesResponse:
        size = _page_size(request.page_size)
        project = parse_project(request.parent)
        position = self._pages.open(request, request.page_token) if request.page_token else {"source": "", "path": ""}
        after = (str(position["source"]), str(position["path"]))
        found, total = await self._service.list_skipped(project, await self._visible(context), after, size + 1)
        token = ""
        if len(found) > size:
            last = found[size - 1]
            token = self._pages.seal(request, {"source": last["source"], "path": last["path"]})
        return index_service_pb2.ListSkippedFilesResponse(
            skipped_files=[
                index_run_pb2.SkippedFile(
                    source=source_name(project, one["source"]),
                    path=one["path"],
                    reason=one["reason"],
                    detail=one["detail"],
                )
                for one in found[:size]
            ],
            next_page_token=token,
            total_size=total,
        )

    async def ObserveProject(
        self, request: index_service_pb2.ObserveProjectRequest, context: Context
    ) -> index_service_pb2.ObserveProjectResponse:
        visible = await self._visible(context)
        project, observation, seen = await self._observer.observe(parse_project(request.project), visible)
        return index_service_pb2.ObserveProjectResponse(
            snapshot=_snapshot(project, observation),
            files=index_run_pb2.FileCounts(
                new=seen.new,
                changed=seen.changed,
                unchanged=seen.unchanged,
                deleted=seen.deleted,
                skipped=seen.skipped,
            ),
        )

    async def RepairProject(
        self, request: index_service_pb2.RepairProjectRequest, context: Context
    ) -> index_service_pb2.RepairProjectResponse:
        visible = await self._visible(context)
        project, damages, rebuilt = await self._repairs.repair(parse_project(request.project), visible)
        return index_service_pb2.RepairProjectResponse(
            damages=[f"{one.file.method} {one.file.logical_name} {one.problem}" for one in damages],
            rebuilt_files=rebuilt,
            generation=project.generation,
        )

    async def ClearProject(
        self, request: index_service_pb2.ClearProjectRequest, context: Context
    ) -> operations_pb2.Operation:
        return _operation(await self._service.clear(parse_project(request.project), await self._visible(context)))

    async def UploadArchive(self, request_iterator: Any, context: Context) -> index_service_pb2.UploadArchiveResponse:
        raise Unimplemented("Uploading archives is not available in this release; mount a folder instead.")

    async def _visible(self, context: Context) -> Visible:
        return await self._authorizer.visible(metadata_of(context))


class OperationsServicer(operations_pb2_grpc.OperationsServicer):  # type: ignore[misc]  # the wheel has no stubs
    """google.longrunning.Operations over the runs in Postgres."""

    def __init__(self, service: IngestService, authorizer: Authorizer, pages: PageTokens) -> None:
        self._service = service
        self._authorizer = authorizer
        self._pages = pages

    async def GetOperation(self, request: Any, context: Context) -> operations_pb2.Operation:
        project, operation_id = parse_operation(request.name)
        visible = await self._authorizer.visible(metadata_of(context))
        return _operation(await self._service.get_operation(project, operation_id, visible))

    async def ListOperations(self, request: Any, context: Context) -> operations_pb2.ListOperationsResponse:
        size = _page_size(request.page_size)
        project = parse_project(request.name) if request.name else ""
        before = None
        if request.page_token:
            before = int(str(self._pages.open(request, request.page_token)["before"]))
        visible = await self._authorizer.visible(metadata_of(context))
        found = await self._service.list_operations(project, visible, before, size + 1)
        token = self._pages.seal(request, {"before": found[size - 1].id}) if len(found) > size else ""
        return operations_pb2.ListOperationsResponse(
            operations=[_operation(one) for one in found[:size]], next_page_token=token
        )

    async def CancelOperation(self, request: Any, context: Context) -> empty_pb2.Empty:
        project, operation_id = parse_operation(request.name)
        visible = await self._authorizer.visible(metadata_of(context))
        await self._service.cancel_operation(project, operation_id, visible)
        return empty_pb2.Empty()

    async def WaitOperation(self, request: Any, context: Context) -> operations_pb2.Operation:
        project, operation_id = parse_operation(request.name)
        visible = await self._authorizer.visible(metadata_of(context))
        limit_s = float(request.timeout.seconds) if request.HasField("timeout") else _LONGEST_WAIT_S
        operation = await self._service.get_operation(project, operation_id, visible)
        try:
            async with asyncio.timeout(max(0.0, min(limit_s, _LONGEST_WAIT_S))):
                async for operation in self._service.watch(project, operation_id, visible):  # noqa: B007
                    pass
        except TimeoutError:
            operation = await self._service.get_operation(project, operation_id, visible)
        return _operation(operation)

    async def DeleteOperation(self, request: Any, context: Context) -> empty_pb2.Empty:
        raise Unimplemented("Operations are kept with their project.")


def _page_size(asked: int) -> int:
    if asked < 0:
        raise InvalidArgument("page_size is negative.", remedy="Leave it out or give a positive number.")
    return min(asked or _DEFAULT_PAGE, _LARGEST_PAGE)


def _time(moment: Any) -> timestamp_pb2.Timestamp | None:
    if moment is None:
        return None
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _project(project: Project) -> project_pb2.Project:
    return project_pb2.Project(
        name=project_name(project.name),
        display_name=project.display_name,
        embedding_model=project.embedding_model,
        generation=project.generation,
        publish_time=_time(project.published_at),
        create_time=_time(project.created_at),
        tiers=[project_pb2.TierRule(package_glob=one.glob, tier=_TIERS[one.tier]) for one in project.tiers],
        index_dependencies=project.index_dependencies,
    )


def _rules(messages: Iterable[project_pb2.TierRule]) -> tuple[TierRule, ...]:
    rules = []
    for message in messages:
        tier = next((one for one, number in _TIERS.items() if number == message.tier), None)
        if tier is None or not message.package_glob:
            raise InvalidArgument(
                "A tier rule needs a glob over packages and a tier.",
                remedy="Tiers are TIER_FULL, TIER_DOC_PAGES and TIER_NONE.",
            )
        rules.append(TierRule(message.package_glob, tier))
    return tuple(rules)


def _source(project: str, source: Source) -> project_pb2.Source:
    message = project_pb2.Source(
        name=source_name(project, source.name),
        package=source.package,
        create_time=_time(source.created_at),
        tier=_TIERS[source.indexed_tier],
        managed=source.managed,
    )
    if source.kind == WHEEL:
        message.wheel.file = source.root.name
    else:
        message.folder.path = source.location
    return message


def _snapshot(project: Project, observation: Observation | None) -> common_pb2.Snapshot:
    return common_pb2.Snapshot(
        project=project_name(project.name),
        generation=project.generation,
        publish_time=_time(project.published_at),
        stale=observation.stale if observation else False,
        stale_reason=observation.reason if observation else "",
        observe_time=_time(observation.observed_at) if observation else None,
    )


def _method(status: MethodStatus) -> common_pb2.MethodStatus:
    return common_pb2.MethodStatus(
        method=status.method,
        state=_STATES[status.state],
        reason=status.reason,
        remedy=status.remedy,
        engine=status.engine,
        count=status.count,
        update_time=_time(status.updated_at),
    )


def _status(status: Status) -> project_pb2.ProjectStatus:
    name = status.project.name
    return project_pb2.ProjectStatus(
        project=project_name(name),
        snapshot=_snapshot(status.project, status.observation),
        files=status.counts["files"],
        chunks=status.counts["chunks"],
        symbols=status.counts["symbols"],
        references=status.counts["edges"],
        decisions=status.counts["decisions"],
        methods=[_method(one) for one in status.methods],
        sidecars=[
            project_pb2.Sidecar(method=file.method, sha256=file.sha256.hex(), size_bytes=file.size_bytes)
            for file in status.sidecars
        ],
        running_operation=operation_name(name, status.running) if status.running else "",
        last_operation=operation_name(name, status.ended) if status.ended else "",
        skipped_files=status.skipped,
    )


def _report(operation: Operation) -> index_run_pb2.IndexRunReport:
    report = RunReport.from_json(operation.report)
    degraded = [Degradation(**one) for one in report.degraded]
    return index_run_pb2.IndexRunReport(
        project=project_name(operation.project),
        operation=operation_name(operation.project, operation.id),
        stage=index_run_pb2.INDEX_STAGE_DONE if operation.done else _STAGES[report.stage],
        files=index_run_pb2.FileCounts(
            new=report.files_new,
            changed=report.files_changed,
            unchanged=report.files_unchanged,
            deleted=report.files_deleted,
            skipped=report.files_skipped,
            read=report.files_read,
            resumed=report.files_resumed,
        ),
        chunks=index_run_pb2.ChunkCounts(
            kept=report.chunks_kept,
            moved=report.chunks_moved,
            added=report.chunks_added,
            removed=report.chunks_removed,
        ),
        embeddings=index_run_pb2.EmbeddingCounts(
            texts=report.texts,
            cache_hits=report.cache_hits,
            cache_misses=report.cache_misses,
            embedded=report.embedded,
            calls=report.embed_calls,
            embed_ms=report.embed_ms,
            model=report.model,
            truncated=report.truncated,
        ),
        generation=report.generation,
        published=report.published,
        degraded=[
            common_pb2.MethodStatus(
                method=one.method,
                state=common_pb2.METHOD_STATE_DEGRADED,
                reason=one.reason,
                remedy=one.remedy,
            )
            for one in degraded
        ],
        stages=[
            index_run_pb2.StageCount(stage=_STAGES[name], items=count.items, wall_ms=count.wall_ms)
            for name, count in report.stages.items()
        ],
        create_time=_time(operation.created_at),
        start_time=_time(operation.started_at),
        end_time=_time(operation.ended_at),
        attempts=operation.attempts,
        renewal_reason=report.renewal_reason,
        warnings=report.warnings,
    )


def _operation(operation: Operation) -> operations_pb2.Operation:
    message = operations_pb2.Operation(name=operation_name(operation.project, operation.id), done=operation.done)
    report = _report(operation)
    message.metadata.Pack(report)
    if operation.state == "done":
        message.response.Pack(report)
    elif operation.done:
        message.error.CopyFrom(as_status(operation.error, cancelled=operation.state == "cancelled"))
    return message
