"""Transport of ingest: proto messages in, use cases, proto messages out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from google.longrunning import operations_pb2, operations_pb2_grpc
from google.protobuf import empty_pb2
from undercroft.ingest.v1 import (
    index_run_pb2,
    index_service_pb2,
    project_pb2,
    project_service_pb2,
    project_service_pb2_grpc,
)

from services.core.authorization import Authorizer, Visible
from services.core.errors import InvalidArgument, Unimplemented
from services.core.grpc import metadata_of
from services.core.names import (
    parse_operation,
    parse_project,
    parse_source,
    source_name,
    upload_name,
)
from services.core.pages import PageTokens
from services.ingest.cache_server import CacheServicer
from services.ingest.caching import EmbeddingCache
from services.ingest.messages import (
    operation_message,
    project_message,
    report_message,
    snapshot_message,
    source_message,
    status_message,
    tier_rules,
)
from services.ingest.observing import Observer
from services.ingest.projects import ARCHIVE, Source
from services.ingest.repairing import Repairs
from services.ingest.service import IngestService, upload_origin
from services.ingest.store.projects import ProjectChanges
from services.ingest.uploads import Uploads

_DEFAULT_PAGE, _LARGEST_PAGE = 100, 1000
_LONGEST_WAIT_S = 3600.0


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
            tiers=tier_rules(request.project.tiers),
            index_dependencies=request.project.index_dependencies,
            sync_interval_s=_seconds(request.project),
            watch=request.project.watch,
        )
        return project_message(await self._service.create_project(request.project_id, wanted))

    async def GetProject(self, request: project_service_pb2.GetProjectRequest, context: Context) -> project_pb2.Project:
        visible = await self._visible(context)
        return project_message(await self._service.get_project(parse_project(request.name), visible))

    async def ListProjects(
        self, request: project_service_pb2.ListProjectsRequest, context: Context
    ) -> project_service_pb2.ListProjectsResponse:
        size = _page_size(request.page_size)
        after = self._after(request, "")
        found = await self._service.list_projects(await self._visible(context), after, size + 1)
        token = self._pages.seal(request, {"after": found[size - 1].name}) if len(found) > size else ""
        return project_service_pb2.ListProjectsResponse(
            projects=[project_message(one) for one in found[:size]], next_page_token=token
        )

    async def UpdateProject(
        self, request: project_service_pb2.UpdateProjectRequest, context: Context
    ) -> project_pb2.Project:
        fields = ("display_name", "embedding_model", "tiers", "index_dependencies", "sync_interval", "watch")
        wanted = list(request.update_mask.paths) or list(fields)
        if unknown := sorted(set(wanted) - set(fields)):
            raise InvalidArgument(
                f"{', '.join(unknown)} can't be updated.", remedy=f"The mask may name {' and '.join(fields)}."
            )
        project = request.project
        updates = ProjectChanges(
            display_name=project.display_name if "display_name" in wanted else None,
            embedding_model=project.embedding_model if "embedding_model" in wanted else None,
            tiers=tier_rules(project.tiers) if "tiers" in wanted else None,
            index_dependencies=project.index_dependencies if "index_dependencies" in wanted else None,
            sync_interval_s=_seconds(project) if "sync_interval" in wanted else None,
            watch=project.watch if "watch" in wanted else None,
        )
        visible = await self._visible(context)
        return project_message(
            await self._service.update_project(parse_project(request.project.name), visible, updates)
        )

    async def DeleteProject(
        self, request: project_service_pb2.DeleteProjectRequest, context: Context
    ) -> empty_pb2.Empty:
        await self._service.delete_project(parse_project(request.name), await self._visible(context))
        return empty_pb2.Empty()

    async def GetProjectStatus(
        self, request: project_service_pb2.GetProjectStatusRequest, context: Context
    ) -> project_pb2.ProjectStatus:
        return status_message(await self._service.status(parse_project(request.name), await self._visible(context)))

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
        elif origin == "archive":
            project, source = await self._service.create_archive_source(*where, request.source.archive.upload)
        elif origin == "git":
            git = request.source.git
            project, source = await self._service.create_git_source(*where, git.url, git.revision)
        else:
            raise InvalidArgument(
                "The source has no origin.",
                remedy="Give it a folder, a git repository, an upload or a file of the wheel directory.",
                reason="ORIGIN_MISSING",
            )
        return await self._message(project.name, source, context)

    async def UpdateSource(
        self, request: project_service_pb2.UpdateSourceRequest, context: Context
    ) -> project_pb2.Source:
        project, source_id = parse_source(request.source.name)
        kind = request.source.WhichOneof("origin")
        if kind not in ("archive", "git") or set(request.update_mask.paths) - {kind}:
            raise InvalidArgument(
                "Only another archive or git origin can be given to a source.",
                remedy="Set archive or git, and leave the mask empty or name that field.",
                reason="ORIGIN_NOT_REPLACEABLE",
            )
        if kind == "archive":
            origin = upload_origin(project, request.source.archive.upload)
        else:
            origin = await self._service.git_origin(request.source.git.url, request.source.git.revision)
        source = await self._service.update_source(project, await self._visible(context), source_id, origin)
        return await self._message(project, source, context)

    async def GetSource(self, request: project_service_pb2.GetSourceRequest, context: Context) -> project_pb2.Source:
        project, source = parse_source(request.name)
        found = await self._service.get_source(project, await self._visible(context), source)
        return await self._message(project, found, context)

    async def ListSources(
        self, request: project_service_pb2.ListSourcesRequest, context: Context
    ) -> project_service_pb2.ListSourcesResponse:
        size = _page_size(request.page_size)
        project = parse_project(request.parent)
        after = self._after(request, "")
        found = await self._service.list_sources(project, await self._visible(context), after, size + 1)
        token = self._pages.seal(request, {"after": found[size - 1].name}) if len(found) > size else ""
        names = await self._service.file_names(project, await self._visible(context))
        return project_service_pb2.ListSourcesResponse(
            sources=[source_message(project, one, names) for one in found[:size]], next_page_token=token
        )

    async def DeleteSource(self, request: project_service_pb2.DeleteSourceRequest, context: Context) -> empty_pb2.Empty:
        project, source = parse_source(request.name)
        await self._service.delete_source(project, await self._visible(context), source)
        return empty_pb2.Empty()

    async def _message(self, project: str, source: Source, context: Context) -> project_pb2.Source:
        names: dict[str, str] = {}
        if source.kind == ARCHIVE:
            names = await self._service.file_names(project, await self._visible(context))
        return source_message(project, source, names)

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
        uploads: Uploads,
        authorizer: Authorizer,
        pages: PageTokens,
    ) -> None:
        super().__init__(cache, authorizer)
        self._service = service
        self._observer = observer
        self._repairs = repairs
        self._uploads = uploads
        self._authorizer = authorizer
        self._pages = pages

    async def RunIndex(self, request: index_service_pb2.RunIndexRequest, context: Context) -> operations_pb2.Operation:
        asked = {"verify": request.verify, "force": request.force, "re_embed": request.re_embed}
        options = {name: True for name, wanted in asked.items() if wanted}
        visible = await self._visible(context)
        return operation_message(
            await self._service.run_index(parse_project(request.project), visible, options, request.request_id)
        )

    async def WatchIndexRun(
        self, request: index_service_pb2.WatchIndexRunRequest, context: Context
    ) -> AsyncIterator[index_service_pb2.WatchIndexRunResponse]:
        project, operation_id = parse_operation(request.operation)
        async for operation in self._service.watch(project, operation_id, await self._visible(context)):
            yield index_service_pb2.WatchIndexRunResponse(report=report_message(operation), done=operation.done)

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

    async def ListFileNotes(
        self, request: index_service_pb2.ListFileNotesRequest, context: Context
    ) -> index_service_pb2.ListFileNotesResponse:
        size = _page_size(request.page_size)
        project = parse_project(request.parent)
        after = ("", "", 0)
        if request.page_token:
            place = self._pages.open(request, request.page_token)
            after = (str(place["source"]), str(place["path"]), int(str(place["place"])))
        found, counts = await self._service.list_notes(project, await self._visible(context), after, size + 1)
        token = ""
        if len(found) > size:
            last = found[size - 1]
            token = self._pages.seal(request, {name: last[name] for name in ("source", "path", "place")})
        return index_service_pb2.ListFileNotesResponse(
            notes=[
                index_run_pb2.FileNote(
                    source=source_name(project, one["source"]),
                    path=one["path"],
                    code=one["code"],
                    detail=one["detail"],
                    line=one["line"],
                )
                for one in found[:size]
            ],
            next_page_token=token,
            counts=counts,
        )

    async def ObserveProject(
        self, request: index_service_pb2.ObserveProjectRequest, context: Context
    ) -> index_service_pb2.ObserveProjectResponse:
        visible = await self._visible(context)
        project, observation, seen = await self._observer.observe(parse_project(request.project), visible)
        return index_service_pb2.ObserveProjectResponse(
            snapshot=snapshot_message(project, observation),
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
        return operation_message(
            await self._service.clear(parse_project(request.project), await self._visible(context))
        )

    async def UploadArchive(
        self, request_iterator: AsyncIterator[index_service_pb2.UploadArchiveRequest], context: Context
    ) -> index_service_pb2.UploadArchiveResponse:
        first = await anext(aiter(request_iterator), None)
        if first is None:
            raise InvalidArgument(
                "The call has no message.", remedy="Name project and file in the first message, and send the archive."
            )
        project = parse_project(first.parent)

        async def parts() -> AsyncIterator[bytes]:
            yield first.data
            async for request in request_iterator:
                yield request.data

        received = await self._uploads.receive(project, await self._visible(context), first.file_name, parts())
        return index_service_pb2.UploadArchiveResponse(
            upload=upload_name(project, received.upload.sha256.hex()),
            files=received.unpacked.files,
            size_bytes=received.unpacked.size_bytes,
            skipped=len(received.unpacked.skipped),
        )

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
        return operation_message(await self._service.get_operation(project, operation_id, visible))

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
            operations=[operation_message(one) for one in found[:size]], next_page_token=token
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
        return operation_message(operation)

    async def DeleteOperation(self, request: Any, context: Context) -> empty_pb2.Empty:
        raise Unimplemented("Operations are kept with their project.")


def _seconds(project: project_pb2.Project) -> float:
    """Return the sync interval in seconds, 0 for none."""
    return project.sync_interval.seconds + project.sync_interval.nanos / 1e9


def _page_size(asked: int) -> int:
    if asked < 0:
        raise InvalidArgument("page_size is negative.", remedy="Leave it out or give a positive number.")
    return min(asked or _DEFAULT_PAGE, _LARGEST_PAGE)
