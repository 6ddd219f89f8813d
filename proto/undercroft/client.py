"""A client of the four services: channels, stubs, and errors that say their next step.

    with Client(ingest="127.0.0.1:7001", search="127.0.0.1:7002") as client:
        for hit in client.search.Search(SearchRequest(query="connection pool")).hits:
            print(hit.place.path, hit.place.span.start_line)

A failed call raises ``grpc.RpcError``; ``explain`` reads the ErrorInfo in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc
from google.longrunning import operations_pb2_grpc
from google.rpc import error_details_pb2, status_pb2

from undercroft.decisions.v1 import decision_service_pb2_grpc
from undercroft.embed.v1 import embed_service_pb2_grpc, model_service_pb2_grpc
from undercroft.ingest.v1 import index_service_pb2_grpc, project_service_pb2_grpc
from undercroft.search.v1 import search_service_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

_SERVICE_CONFIG = json.dumps(
    {
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "2s",
                    "backoffMultiplier": 2,
                    # CANCELLED is what a server says of calls that reach it when it has begun to stop.
                    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
                },
            }
        ],
    }
)


def channel_options(max_message_bytes: int = MAX_MESSAGE_BYTES) -> list[tuple[str, str | int]]:
    """Return the options of a channel: limits, keepalive, retries, calls spread over replicas.

    No proxy of the environment is used.
    """
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.service_config", _SERVICE_CONFIG),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.enable_http_proxy", 0),
        # After a pod's end its name is asked for again at once, not 30 s after it was asked for last.
        ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ]


class Client:
    """Stubs of the services whose ``host:port`` is given; the others are not to be used."""

    def __init__(self, *, ingest: str = "", embed: str = "", search: str = "", decisions: str = "") -> None:
        self._channels: list[grpc.Channel] = []
        ingest_channel = self._channel(ingest)
        self.projects = project_service_pb2_grpc.ProjectServiceStub(ingest_channel)
        self.index = index_service_pb2_grpc.IndexServiceStub(ingest_channel)
        self.operations = operations_pb2_grpc.OperationsStub(ingest_channel)
        embed_channel = self._channel(embed)
        self.embed = embed_service_pb2_grpc.EmbedServiceStub(embed_channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(embed_channel)
        self.search = search_service_pb2_grpc.SearchServiceStub(self._channel(search))
        self.decisions = decision_service_pb2_grpc.DecisionServiceStub(self._channel(decisions))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels:
            channel.close()

    def _channel(self, target: str) -> grpc.Channel:
        # A channel connects at its first call, so one that is not given costs nothing and fails when it is used.
        channel = grpc.insecure_channel(target or "unix:not-configured", options=channel_options())
        self._channels.append(channel)
        return channel


@dataclass(frozen=True)
class CallError:
    """What a failed call says. ``reason`` is a stable word for programs, ``remedy`` the next step for people."""

    code: str
    message: str
    reason: str = ""
    remedy: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


def explain(error: grpc.RpcError) -> CallError:
    """Return what a failed call says."""
    # Errors of calls are RpcError and Call at once, which the stubs of grpc do not say.
    call: Any = error
    if not hasattr(call, "trailing_metadata"):
        return CallError("UNKNOWN", str(error))
    code, message = call.code().name, call.details() or ""
    for key, value in call.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    metadata = dict(info.metadata)
                    remedy = metadata.pop("remedy", "")
                    return CallError(code, message.removesuffix(remedy).strip(), info.reason, remedy, metadata)
    return CallError(code, message)
