"""Domain values of ingest as proto messages, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.longrunning import operations_pb2
from google.protobuf import duration_pb2, timestamp_pb2
from undercroft.common.v1 import common_pb2
from undercroft.ingest.v1 import index_run_pb2, project_pb2

from services.core.errors import InvalidArgument
from services.core.grpc import as_status
from services.core.names import operation_name, project_name, source_name, upload_name
from services.ingest import service as use_cases
from services.ingest.projects import ARCHIVE, GIT, WHEEL, Degradation, Observation, Project, Source
from services.ingest.reports import RunReport
from services.ingest.service import MethodStatus, Status
from services.ingest.store.operations import Operation
from services.ingest.tiers import Tier, TierRule

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


def _time(moment: Any) -> timestamp_pb2.Timestamp | None:
    if moment is None:
        return None
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _duration(seconds: float) -> duration_pb2.Duration | None:
    if not seconds:
        return None
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def project_message(project: Project) -> project_pb2.Project:
    return project_pb2.Project(
        name=project_name(project.name),
        display_name=project.display_name,
        embedding_model=project.embedding_model,
        generation=project.generation,
        publish_time=_time(project.published_at),
        create_time=_time(project.created_at),
        tiers=[project_pb2.TierRule(package_glob=one.glob, tier=_TIERS[one.tier]) for one in project.tiers],
        index_dependencies=project.index_dependencies,
        sync_interval=_duration(project.sync_interval_s),
        watch=project.watch,
        live_embedding_model=project.live_model,
    )


def tier_rules(messages: Iterable[project_pb2.TierRule]) -> tuple[TierRule, ...]:
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


def source_message(project: str, source: Source, file_names: Mapping[str, str]) -> project_pb2.Source:
    """Return a source; ``file_names`` are those of uploads, by location."""
    message = project_pb2.Source(
        name=source_name(project, source.name),
        package=source.package,
        create_time=_time(source.created_at),
        tier=_TIERS[source.indexed_tier],
        managed=source.managed,
    )
    if source.kind == WHEEL:
        message.wheel.file = source.root.name
    elif source.kind == ARCHIVE:
        message.archive.upload = upload_name(project, source.location)
        message.archive.file_name = file_names.get(source.location, "")
    elif source.kind == GIT:
        message.git.url, message.git.revision = source.location, source.revision
        message.git.commit = source.indexed.digest.hex() if source.indexed else ""
    else:
        message.folder.path = source.location
    return message


def snapshot_message(project: Project, observation: Observation | None) -> common_pb2.Snapshot:
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


def status_message(status: Status) -> project_pb2.ProjectStatus:
    name = status.project.name
    return project_pb2.ProjectStatus(
        project=project_name(name),
        snapshot=snapshot_message(status.project, status.observation),
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


def report_message(operation: Operation) -> index_run_pb2.IndexRunReport:
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


def operation_message(operation: Operation) -> operations_pb2.Operation:
    message = operations_pb2.Operation(name=operation_name(operation.project, operation.id), done=operation.done)
    report = report_message(operation)
    message.metadata.Pack(report)
    if operation.state == "done":
        message.response.Pack(report)
    elif operation.done:
        message.error.CopyFrom(as_status(operation.error, cancelled=operation.state == "cancelled"))
    return message
