"""JSON logs on standard error and Prometheus metrics on a port of their own."""

from __future__ import annotations

import logging
import sys

import prometheus_client
import structlog

CALLS = prometheus_client.Counter("undercroft_grpc_calls_total", "Calls by method and status.", ("method", "code"))
CALL_SECONDS = prometheus_client.Histogram(
    "undercroft_grpc_call_seconds",
    "Time of calls in seconds.",
    ("method",),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
)


def configure_logging(service: str, level: str) -> None:
    """Log one JSON object per line to standard error, the standard library's loggers included."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(sort_keys=True),
            ],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    structlog.contextvars.bind_contextvars(service=service)


def serve_metrics(listen: str) -> None:
    """Serve /metrics on ``host:port``; an IPv6 host is in brackets, as it is in the address of the gRPC server."""
    host, _, port = listen.rpartition(":")
    prometheus_client.start_http_server(int(port), addr=host.strip("[]"))
