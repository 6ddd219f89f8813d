"""Ask a service for its health, and end with 0 only if it serves: ``python -m services.core.probe HOST:PORT``.

For orchestrators whose probes don't speak gRPC (Kubernetes below 1.24, compose): where the service runs there may be
no shell and no other client.
"""

from __future__ import annotations

import argparse
import sys
from typing import cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_STATUS = health_pb2.HealthCheckResponse.ServingStatus


def probe(target: str, service: str = "", timeout_s: float = 10.0) -> str:
    """Return SERVING, NOT_SERVING or SERVICE_UNKNOWN, as the service says it; else the gRPC code of the failure.

    ``service`` is the full name of one of its services; empty for all of it.
    """
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout_s)
        except grpc.RpcError as error:
            # Errors of calls are RpcError and Call at once, which the stubs of grpc do not say.
            code = cast(grpc.Call, error).code()
            return "SERVICE_UNKNOWN" if code is grpc.StatusCode.NOT_FOUND else str(code.name)
    name: str = _STATUS.Name(answer.status)
    return name


def main() -> None:
    """End with 0 if the service serves, else with 1 and what it says on standard error."""
    parser = argparse.ArgumentParser(prog="python -m services.core.probe", description="Ask a service for its health.")
    parser.add_argument("target", help="host:port")
    parser.add_argument("--service", default="", help="full name of a gRPC service [default: all of the process]")
    parser.add_argument(
        "--timeout", type=float, default=10.0, help="seconds until the answer is given up [default: 10]"
    )
    arguments = parser.parse_args()
    said = probe(arguments.target, arguments.service, arguments.timeout)
    if said != "SERVING":
        sys.exit(f"{arguments.target} says {said}")


if __name__ == "__main__":
    main()
