"""Serve and call gRPC the same way everywhere: limits, keepalive, health, reflection, draining, errors.

The error tree of ``services.core.errors`` becomes a status with ``google.rpc.ErrorInfo`` in ``ErrorInterceptor`` and
nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
import structlog
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from undercroft.client import channel_options

from services.core import telemetry
from services.core.errors import (
    DOMAIN,
    Conflict,
    DataLoss,
    InvalidArgument,
    NotFound,
    NotReady,
    Overloaded,
    PermissionDenied,
    Unavailable,
    UndercroftError,
    Unimplemented,
)
from services.core.settings import ServiceSettings

log = structlog.get_logger(__name__)

_CODES: dict[type[UndercroftError], grpc.StatusCode] = {
    InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
    Conflict: grpc.StatusCode.ABORTED,
    NotReady: grpc.StatusCode.FAILED_PRECONDITION,
    Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    DataLoss: grpc.StatusCode.DATA_LOSS,
    Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
}
# A taken name is not worth a retry, unlike other conflicts.
_ALREADY_EXISTS = "ALREADY_EXISTS"

# Errors of libraries that only some services have, with what a caller is told.
_FOREIGN: list[tuple[type[Exception], UndercroftError]] = []
_MOST_CHARS = 600
_WATCH_INTERVAL_S = 5.0
Register = Callable[[grpc.aio.Server], list[str]]


def tell_as(kind: type[Exception], answer: UndercroftError) -> None:
    """Have callers told ``answer`` when an error of a library, of ``kind``, ends a call; more special kinds first."""
    _FOREIGN.append((kind, answer))


def status_code(error: UndercroftError) -> grpc.StatusCode:
    """Return the gRPC code of an error."""
    if error.reason == _ALREADY_EXISTS:
        return grpc.StatusCode.ALREADY_EXISTS
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


def status_details(error: UndercroftError) -> status_pb2.Status:
    """Return the ``google.rpc.Status`` of an error, with ErrorInfo and, for Overloaded, RetryInfo."""
    metadata = {key: _clipped(value) for key, value in error.metadata.items()}
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    if error.remedy:
        info.metadata["remedy"] = _clipped(error.remedy)
    details = [any_pb2.Any(), *([any_pb2.Any()] if isinstance(error, Overloaded) else [])]
    details[0].Pack(info)
    if isinstance(error, Overloaded):
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(error.retry_after_s * 1e9))
        details[1].Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status_pb2.Status(code=status_code(error).value[0], message=_clipped(str(error)), details=details)


def _clipped(text: str) -> str:
    """Keep a message that echoes its input within what fits the headers of an answer, which carry it twice."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _MOST_CHARS else text[: _MOST_CHARS - 1] + "…"


def as_status(stored: Mapping[str, str] | None, *, cancelled: bool) -> status_pb2.Status:
    """Return the status of an operation that failed with a stored {kind, reason, message, remedy}, or was cancelled."""
    if cancelled or stored is None:
        return status_pb2.Status(code=grpc.StatusCode.CANCELLED.value[0], message="The operation was cancelled.")
    kind = next((one for one in _CODES if one.__name__ == stored["kind"]), UndercroftError)
    return status_details(kind(stored["message"], remedy=stored["remedy"], reason=stored["reason"]))


def as_undercroft_error(error: BaseException) -> UndercroftError:
    """Return the error that a caller is told for any exception."""
    if isinstance(error, UndercroftError):
        return error
    for kind, answer in _FOREIGN:
        if isinstance(error, kind):
            return answer
    return UndercroftError("Internal error.", remedy="The service's log has the details.", reason="INTERNAL")


async def _abort(method: str, context: grpc.aio.ServicerContext[Any, Any], raised: Exception) -> NoReturn:
    error = as_undercroft_error(raised)
    if status_code(error) is grpc.StatusCode.INTERNAL:
        log.error("call failed", method=method, exc_info=raised)
    metadata: list[tuple[str, str | bytes]] = [("grpc-status-details-bin", status_details(error).SerializeToString())]
    if isinstance(error, Unavailable) and error.waited:
        # Four times a wait of half a minute helps nobody: the retry policy of clients ends with this (gRFC A6).
        metadata.append(("grpc-retry-pushback-ms", "-1"))
    await context.abort(status_code(error), _clipped(str(error)), tuple(metadata))
    raise AssertionError("abort returns never")


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns raised errors into statuses, and counts and times calls."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        codec = (handler.request_deserializer, handler.response_serializer)
        match handler.request_streaming, handler.response_streaming:
            case False, False:
                return grpc.unary_unary_rpc_method_handler(self._unary(method, handler.unary_unary), *codec)
            case True, False:
                return grpc.stream_unary_rpc_method_handler(self._unary(method, handler.stream_unary), *codec)
            case False, True:
                return grpc.unary_stream_rpc_method_handler(self._streaming(method, handler.unary_stream), *codec)
            case _:
                return grpc.stream_stream_rpc_method_handler(self._streaming(method, handler.stream_stream), *codec)

    @staticmethod
    def _unary(method: str, inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            with _timed(method, context):
                try:
                    return await inner(request, context)
                except grpc.aio.AbortError:
                    raise
                except Exception as error:
                    await _abort(method, context, error)

        return call

    @staticmethod
    def _streaming(method: str, inner: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
            with _timed(method, context):
                try:
                    result = inner(request, context)
                    if hasattr(result, "__aiter__"):
                        async for response in result:
                            yield response
                    else:
                        # Health and reflection write to the context instead of yielding.
                        await result
                except grpc.aio.AbortError:
                    raise
                except Exception as error:
                    await _abort(method, context, error)

        return call


@contextlib.contextmanager
def _timed(method: str, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
    start = time.perf_counter()
    try:
        yield
    finally:
        code = context.code()
        name = "OK" if not code else code.name if isinstance(code, grpc.StatusCode) else str(code)
        telemetry.CALLS.labels(method, name).inc()
        telemetry.CALL_SECONDS.labels(method).observe(time.perf_counter() - start)


def metadata_of(context: grpc.aio.ServicerContext[Any, Any]) -> dict[str, str]:
    """Return the text metadata of a call."""
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def _server_options(settings: ServiceSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        # Clients ping every 30 s or so; the default minimum of 300 s answers them with too_many_pings.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Connections are renewed so that calls spread over replicas that came later. No call notices: a stream keeps
        # the old connection for as long as it runs.
        ("grpc.max_connection_age_ms", 2 * 60 * 1000),
        # Two servers on one port would share its calls in silence.
        ("grpc.so_reuseport", 0),
    ]


def open_channel(target: str) -> grpc.aio.Channel:
    """Open a channel to a sister service."""
    return grpc.aio.insecure_channel(target, options=channel_options())


async def serve(
    name: str,
    settings: ServiceSettings,
    register: Register,
    *,
    ready: Callable[[], Awaitable[None]] | None = None,
    needs: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    ``register`` adds the servicers and returns the full names of their services. While ``ready`` has not finished,
    health says NOT_SERVING, so a model that still loads does not look dead. A failing ``ready`` ends the server.
    ``needs`` are checks of what calls need, which raise when it does not answer. Health has each under its name and is
    SERVING without them: replicas taken out for a database that all share would leave callers without the reason.
    """
    server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=_server_options(settings))
    names = register(server)
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection(
        (*names, health.SERVICE_NAME, reflection.SERVICE_NAME),
        server,
    )
    port = _listen(server, settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for service in ("", *names):
        await health_servicer.set(service, health_pb2.HealthCheckResponse.NOT_SERVING)
    for need in needs or {}:
        # Who serves has had its answers a moment ago.
        await health_servicer.set(need, health_pb2.HealthCheckResponse.SERVING)
    await server.start()
    log.info("listening", port=port)
    stopped = asyncio.ensure_future(stop.wait())
    watches = [asyncio.create_task(_watch(health_servicer, need, check)) for need, check in (needs or {}).items()]
    try:
        if ready is not None:
            starting = asyncio.ensure_future(ready())
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                starting.cancel()
                return
            await starting
        for service in ("", *names):
            await health_servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
        log.info("serving", services=names)
        await stopped
        await health_servicer.enter_graceful_shutdown()
        # Endpoints are removed while the pod is already told to stop; calls that still arrive are served.
        await asyncio.sleep(settings.drain_s)
    finally:
        for task in (stopped, *watches):
            task.cancel()
        await server.stop(settings.shutdown_grace_s)
        log.info("stopped", service=name)


def _listen(server: grpc.aio.Server, settings: ServiceSettings) -> int:
    """Take the addresses; NotReady names the setting whose address is taken or not of this machine."""
    setting, address = "UNDERCROFT_LISTEN", settings.listen
    try:
        port = server.add_insecure_port(address)
        if settings.metrics_listen:
            setting, address = "UNDERCROFT_METRICS_LISTEN", settings.metrics_listen
            telemetry.serve_metrics(address)
    except (RuntimeError, OSError) as error:
        # gRPC has told its reason in the log, and raises without it.
        why = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        raise NotReady(
            f"{setting}: nothing can listen on {address}{why}.",
            remedy="Stop the program that has the port, or name another one, or another address of this machine.",
            reason="ADDRESS_NOT_AVAILABLE",
        ) from error
    return port


async def _watch(servicer: health.aio.HealthServicer, name: str, check: Callable[[], Awaitable[None]]) -> None:
    """Keep the health of what a service needs."""
    was = health_pb2.HealthCheckResponse.SERVING
    while True:
        try:
            await check()
            now = health_pb2.HealthCheckResponse.SERVING
        except Exception as error:
            now = health_pb2.HealthCheckResponse.NOT_SERVING
            if now != was:
                log.warning("what calls need does not answer", needed=name, error=str(error) or type(error).__name__)
        await servicer.set(name, now)
        was = now
        await asyncio.sleep(_WATCH_INTERVAL_S)


def remaining_s(context: grpc.aio.ServicerContext[Any, Any]) -> float | None:
    """Return the time until the call's deadline in seconds; None without one."""
    return context.time_remaining()


def error_reason(error: grpc.aio.AioRpcError) -> tuple[str, Mapping[str, str]]:
    """Return reason and metadata of the ErrorInfo that a failed call carries; empty when it has none."""
    info = error_details_pb2.ErrorInfo()
    return (info.reason, dict(info.metadata)) if _unpack(error, info) else ("", {})


def told(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    """Return message and remedy of a failed call apart; its details have both, for callers that show no more."""
    remedy = error_reason(error)[1].get("remedy", "")
    return (error.details() or "").removesuffix(remedy).strip(), remedy


def retry_after_s(error: grpc.aio.AioRpcError) -> float | None:
    """Return the seconds that a failed call asks to wait for (RetryInfo); None when it does not say."""
    info = error_details_pb2.RetryInfo()
    return info.retry_delay.ToNanoseconds() / 1e9 if _unpack(error, info) else None


def _unpack(error: grpc.aio.AioRpcError, into: Message) -> bool:
    """Read the detail of a failed call that is of the kind of ``into``; False when there is none."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            return any(detail.Unpack(into) for detail in status_pb2.Status.FromString(value).details)
    return False
