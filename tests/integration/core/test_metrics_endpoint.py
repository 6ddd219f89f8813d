"""Metrics are served on the address that is named, and no name is looked up for that."""

from __future__ import annotations

import socket
import urllib.request
from typing import Any

import pytest

from services.core.telemetry import CALLS, serve_metrics


@pytest.fixture(autouse=True)
def no_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a name is looked up: a container's own is in no file, so that would go to a name server."""

    def refuse(*arguments: Any) -> Any:
        raise AssertionError(f"looked up {arguments}")

    for name in ("getfqdn", "gethostbyaddr", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.parametrize("everything", ["0.0.0.0:0", "[::]:0"])
def test_every_address_is_served_on_without_a_lookup(everything: str) -> None:
    CALLS.labels("/a.B/C", "OK").inc()
    port = serve_metrics(everything)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(2):
        with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert b'undercroft_grpc_calls_total{code="OK",method="/a.B/C"}' in answer.read()


def test_every_address_is_served_on_where_there_is_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    port = serve_metrics("[::]:0")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.status == 200


def test_an_ipv6_address_is_in_brackets() -> None:
    try:
        port = serve_metrics("[::1]:0")
    except OSError:
        pytest.skip("no IPv6 here")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://[::1]:{port}/metrics", timeout=10) as answer:
        assert answer.status == 200
