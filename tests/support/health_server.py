"""A small real gRPC service for tests of supervision: ``python health_server.py MODE [FILE]``.

``serve``     serves, and drains on SIGTERM
``stubborn``  serves and ignores SIGTERM; a worker that it started ignores it too, and its pid goes to FILE
``broken``    says why and ends with 3
``silent``    runs and never listens
``idle``      listens and never says SERVING
``cut-off``   serves, and says that its database does not answer
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def main(mode: str, file: str) -> int:
    if mode == "broken":
        print("the model directory /models/none does not exist", file=sys.stderr)
        return 3
    stop = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if mode == "stubborn" else lambda *_: stop.set())
    if mode == "silent":
        stop.wait()
        return 0
    if mode == "stubborn":
        Path(file).write_text(str(subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600 & wait; wait"]).pid))
    elif file:
        settings = {name: value for name, value in os.environ.items() if name.startswith(("UNDERCROFT_", "PG"))}
        Path(file).write_text(json.dumps({"cwd": os.getcwd(), "argv": sys.argv, **settings}))
    server = grpc.server(ThreadPoolExecutor(2))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    status = health_pb2.HealthCheckResponse.NOT_SERVING if mode == "idle" else health_pb2.HealthCheckResponse.SERVING
    servicer.set("", status)
    if mode == "cut-off":
        servicer.set("database", health_pb2.HealthCheckResponse.NOT_SERVING)
    server.add_insecure_port(os.environ["UNDERCROFT_LISTEN"])
    server.start()
    print("listening", flush=True)
    stop.wait()
    server.stop(1).wait()
    print("drained", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
