"""JSON logs on standard error and Prometheus metrics on a port of their own."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from socketserver import TCPServer, ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

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


class _MetricsServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # HTTPServer, which prometheus_client's own server is, looks the name of its host up in DNS here.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _MetricsServer6(_MetricsServer):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _MetricsHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: metrics are asked for every few seconds."""


def serve_metrics(listen: str) -> int:
    """Serve /metrics on ``host:port``, an IPv6 host in brackets; return the port, which is a free one for port 0.

    ``[::]`` is all addresses, of IPv4 too, as it is where gRPC listens.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if host == "::" and not socket.has_dualstack_ipv6():
        host = "0.0.0.0"
    kind = _MetricsServer6 if ":" in host else _MetricsServer
    server = make_server(host, int(port), prometheus_client.make_wsgi_app(), kind, _MetricsHandler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server.server_port
