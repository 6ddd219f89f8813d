"""The database's connection string, checked without ever being shown.

What libpq misreads ends up in messages: in ``postgresql://u:a/b@host/d`` it takes ``a`` of the password for a port and
says so. Such strings are refused, so that what is tried afterwards can be logged.
"""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict

_SCHEMES = ("postgresql://", "postgres://")
_REMEDY = (
    "Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with the special characters of the password percent-encoded:"
    " % is %25, @ is %40, / is %2F, ? is %3F, # is %23, a blank is %20."
)


def check_conninfo(value: str) -> str:
    """Return a connection string that libpq reads as it is meant; ValueError says what is wrong without its text."""
    scheme, has_scheme, rest = value.partition("://")
    is_url = value.startswith(_SCHEMES)
    if has_scheme and not is_url and "=" not in scheme:
        raise _wrong("has another scheme than postgresql://")
    try:
        # ``options`` is what libpq makes of it, the defaults of PG… variables left out.
        options = {name: str(said) for name, said in conninfo_to_dict(value).items() if said is not None}
    except psycopg.ProgrammingError as error:
        # Not chained: libpq quotes what it can't read, and that may be the password.
        raise _wrong(_fault(str(error), has_scheme=bool(has_scheme))) from None
    except UnicodeError:
        raise _wrong("has bytes that are no UTF-8") from None
    # libpq ends user and password at the first @ that no / is before; a ? ends them not.
    credentials, has_credentials, after = rest.partition("@")
    located = after if has_credentials and "/" not in credentials else rest
    if is_url and "@" in located.partition("?")[0]:
        raise _wrong("has an @ or a / that is not percent-encoded in the password, or in another part")
    if any("@" in host[1:] for host in options.get("host", "").split(",")) or "://" in options.get("dbname", ""):
        raise _wrong("has a host or a database whose name can't be one")
    if not all(_is_port(port) for port in options.get("port", "").split(",")):
        raise _wrong("has a port that is no number from 1 to 65535")
    if not options.get("connect_timeout", "0").strip().isdecimal():
        raise _wrong("has a connect_timeout that is no number of seconds")
    return value


def _fault(said: str, *, has_scheme: bool) -> str:
    if "unexpected spaces" in said:
        return "has a blank that is not percent-encoded"
    if "extra key/value separator" in said:
        return "has an = that is not percent-encoded in the value of a parameter (it is %3D)"
    if "percent-encoded" in said:
        return "has a percent sign that begins no percent-encoded character"
    if "parameter" in said or "connection option" in said:
        return "has a parameter that libpq does not know"
    if not has_scheme:
        return "has neither the scheme postgresql:// nor the form of keyword=value"
    return "is no connection string that libpq can read"


def _is_port(value: str) -> bool:
    value = value.strip()
    return not value or (value.isascii() and value.isdigit() and len(value) <= 5 and 1 <= int(value) <= 65_535)


def _wrong(what: str) -> ValueError:
    return ValueError(f"{what}. {_REMEDY}")
