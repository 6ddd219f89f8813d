"""What wheels carry in compiled form, as their own bills of materials tell it (PEP 770, CycloneDX)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from packageurl import PackageURL

from services.core.errors import DataLoss


@dataclass(frozen=True, slots=True)
class Component:
    """A library that a wheel carries; ``purl`` and ``licence`` are empty where its bill does not tell them."""

    name: str
    version: str
    purl: str
    licence: str


def read_components(path: str, content: bytes, distribution: str) -> list[Component]:
    """Return the components of a bill that a wheel of ``distribution`` carries, but not the distribution itself.

    Raises ``DataLoss`` for a bill that is none.
    """
    try:
        document = json.loads(content)
        if document.get("bomFormat") != "CycloneDX":
            raise ValueError("only CycloneDX is read")
        return list(_components(document.get("components", ()), distribution))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataLoss(f"{path} is not a bill of materials: {error}", reason="BILL_MALFORMED") from error


def _components(entries: list[dict[str, object]], distribution: str) -> Iterator[Component]:
    for entry in entries:
        purl = _purl(str(entry.get("purl", "")))
        inner = entry.get("components", [])
        if not isinstance(inner, list):
            raise TypeError("components is not a list")
        yield from _components(inner, distribution)
        is_itself = purl and purl.type == "pypi" and _normal(purl.name) == _normal(distribution)
        if not is_itself:
            text = purl.to_string() if purl else ""
            yield Component(str(entry["name"]), str(entry.get("version", "")), text, _licence(entry.get("licenses")))


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")


def _purl(text: str) -> PackageURL | None:
    try:
        return PackageURL.from_string(text) if text else None
    except ValueError:
        return None


def _licence(entries: object) -> str:
    """Return what is stated; several licences apply together."""
    stated = []
    for entry in entries if isinstance(entries, list) else ():
        licence = entry.get("license", {})
        if text := entry.get("expression") or licence.get("id") or licence.get("name"):
            stated.append(str(text))
    return stated[0] if len(stated) == 1 else " AND ".join(f"({one})" for one in stated)
