"""``undercroft status``: what runs, and how it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.appliance.home import Home
from services.appliance.record import ApplianceState, Health
from services.cli.connection import SERVICES, named_targets, variable
from services.cli.options import HomeOption
from services.cli.output import console, fail
from services.core.errors import UndercroftError

if TYPE_CHECKING:
    from services.appliance.control import ApplianceStatus

EXIT_UNHEALTHY = 1
EXIT_STOPPED = 3  # as the Linux Standard Base has it for init scripts

# What the health protocol says, in words.
_SERVES = "SERVING"
_NO_DATABASE = "DATABASE_NOT_SERVING"
_ANSWERS = {
    _SERVES: "serving",
    "NOT_SERVING": "there, but not serving yet: it loads models, or stops",
    _NO_DATABASE: "there, but the database does not answer it: the log of the database tells why",
}

_COLOURS = {Health.SERVING: "green", Health.STARTING: "yellow", Health.RESTARTING: "yellow"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("status")(status)


def status(
    home: HomeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show Postgres, the services and the data directory; where UNDERCROFT_*_TARGET names services, how those are.

    With --home it shows the appliance there all the same.

    Ends with 0 when everything serves, 3 when nothing runs, 1 otherwise.
    """
    if named := named_targets(home):
        _show_named(named, as_json=as_json)
        return
    from services.appliance.control import inspect

    try:
        found = inspect(Home.locate(home))
    except UndercroftError as error:
        fail(error)
    if as_json:
        typer.echo(json.dumps(as_fields(found), indent=2))
    else:
        _show(found, console())
    if found.healthy:
        return
    idle = found.supervisor_pid is None and not found.postgres.running
    raise typer.Exit(EXIT_STOPPED if idle else EXIT_UNHEALTHY)


def _show_named(targets: Mapping[str, str], *, as_json: bool) -> None:
    """Ask services that are not of this machine's appliance for their health, all at once; ends with 1 if one fails."""
    with ThreadPoolExecutor(len(targets)) as pool:
        answers = dict(zip(targets, pool.map(_health, targets.values()), strict=True))
    is_healthy = all(answer == _SERVES for answer in answers.values())
    if as_json:
        services = [{"name": name, "health": answers[name], "target": targets[name]} for name in targets]
        typer.echo(json.dumps({"healthy": is_healthy, "services": services}, indent=2))
    else:
        out = console()
        out.print("Services that the environment names:")
        table = Table(box=None, pad_edge=False)
        for heading in ("", "health", "address", "variable"):
            table.add_column(heading, no_wrap=True)
        for name in SERVICES:
            answer = answers.get(name)
            words = "not named" if answer is None else _ANSWERS.get(answer, f"does not answer ({answer})")
            colour = "dim" if answer is None else "green" if answer == _SERVES else "red"
            table.add_row(name, Text(words, style=colour), targets.get(name, "-"), variable(name))
        out.print(table)
    if not is_healthy:
        raise typer.Exit(EXIT_UNHEALTHY)


def _health(target: str) -> str:
    """Return what a service says of itself, or that its database does not answer."""
    # Imported here, as no other command needs it.
    from services.core.probe import probe

    said = probe(target)
    return _NO_DATABASE if said == _SERVES and probe(target, "database") == "NOT_SERVING" else said


def as_fields(found: ApplianceStatus) -> dict[str, object]:
    """Return the status as JSON fields; times in seconds, sizes in bytes."""
    return {
        "home": str(found.home),
        "state": found.state,
        "phase": found.phase,
        "message": found.message,
        "remedy": found.remedy,
        "healthy": found.healthy,
        "supervisor_pid": found.supervisor_pid,
        "uptime_s": _rounded(found.uptime_s),
        "size_bytes": found.size_bytes,
        "postgres": {
            "running": found.postgres.running,
            "ready": found.postgres.ready,
            "pid": found.postgres.pid,
            "port": found.postgres.port,
            "uptime_s": _rounded(found.postgres.uptime_s),
            "version": found.postgres.version,
            "detail": found.postgres.detail,
        },
        "services": [
            {
                "name": service.record.name,
                "health": str(service.health),
                "pid": service.record.process.pid if service.record.process and service.uptime_s is not None else None,
                "target": service.record.target,
                "metrics_target": service.record.metrics_target,
                "restarts": service.record.restarts,
                "uptime_s": _rounded(service.uptime_s),
            }
            for service in found.services
        ],
    }


def _show(found: ApplianceStatus, out: Console) -> None:
    phase = f" ({found.phase})" if found.phase and found.phase != found.state else ""
    state = found.state
    if state == ApplianceState.READY and not found.healthy:
        state = "up, but not all of it serves"
    out.print(Text(f"Undercroft is {state}{phase}"), soft_wrap=True)
    out.print(Text(f"Data: {found.home} ({_size(found.size_bytes)})"), soft_wrap=True)
    for words in (found.message, found.remedy):
        if words and not found.healthy:
            out.print(Text(words.rstrip()), soft_wrap=True)
    if not found.services and not found.postgres.running:
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("", "health", "pid", "address", "uptime", "restarts"):
        table.add_column(heading, no_wrap=True)
    postgres = found.postgres
    ready = "serving" if postgres.ready else (postgres.detail if postgres.running else "stopped")
    table.add_row(
        "postgres",
        Text(ready, style="green" if postgres.ready else "red"),
        _or_dash(postgres.pid),
        f"127.0.0.1:{postgres.port}" if postgres.port else "-",
        _duration(postgres.uptime_s),
        "-",
    )
    for service in found.services:
        alive = service.uptime_s is not None and service.record.process is not None
        table.add_row(
            service.record.name,
            Text(str(service.health), style=_COLOURS.get(service.health, "red")),
            str(service.record.process.pid) if alive and service.record.process else "-",
            service.record.target,
            _duration(service.uptime_s),
            str(service.record.restarts),
        )
    out.print(table)


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {rest}s" if minutes else f"{rest}s"


def _size(size_bytes: int) -> str:
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
