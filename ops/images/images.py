"""The images as data, and the Containerfile of each."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("images.toml")
POSTGRES = "postgres"
MODEL = "demo-model"

MODEL_NAME = "all-minilm-l6-v2"

_TEMPLATE = Path(__file__).with_name("Containerfile.in")
_POSTGRES = Path(__file__).with_name("postgres.Containerfile")
# It has Python, since before image volumes a program of the image has to copy the model.
_MODEL = f"""FROM @PREFIX@/runtime-base AS runtime
FROM @PREFIX@/runtime-base
COPY {MODEL_NAME} /models/{MODEL_NAME}
COPY --from=runtime /usr/share/common-licenses/Apache-2.0 /models/{MODEL_NAME}/LICENSE.Apache-2.0
USER 65532:0
"""
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    # The user need not exist, nor have a home.
    "HOME": "/tmp",
    "PATH": "/usr/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True)
class Image:
    """One image; ``base`` is a root file system, ``folders`` are mount points, ``max_mb`` is a promise."""

    name: str
    title: str
    about: str
    base: str
    command: tuple[str, ...] = ()
    port: int = 0
    metrics_port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    max_mb: int = 0
    is_separate: bool = False

    def containerfile(self, prefix: str) -> str:
        """Render the Containerfile of an image.

        The context is this project; for the image of the demo model it is the folder that has the model's.
        """
        if self.name == MODEL:
            return _MODEL.replace("@PREFIX@", prefix)
        if self.name == POSTGRES:
            return _POSTGRES.read_text("utf-8").replace("@PREFIX@", prefix)
        environment = dict(_ENVIRONMENT)
        if self.port:
            environment["UNDERCROFT_LISTEN"] = f"[::]:{self.port}"
            environment["UNDERCROFT_METRICS_LISTEN"] = f"[::]:{self.metrics_port}"
        environment |= self.environment
        values = {
            "IMAGE": self.name,
            "PREFIX": prefix,
            "BASE": self.base,
            "ENVIRONMENT": " ".join(f'{name}="{value}"' for name, value in environment.items()),
            "EXPOSE": f"EXPOSE {self.port} {self.metrics_port}\n" if self.port else "",
            "COMMAND": json.dumps(self.command),
        }
        text = _TEMPLATE.read_text("utf-8")
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        return text


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All images, and what they have in common."""

    images: Mapping[str, Image]
    epoch_s: int
    vendor: str
    description: str
    version: str

    def labels(self, image: Image, revision: str, created: str) -> dict[str, str]:
        """Return the annotations of the OCI image specification.

        None about licences: an image carries hundreds of parts under many, and its bills of materials tell them.
        """
        values = {
            "created": created,
            "title": image.title,
            "description": f"{image.about} {self.description}",
            "revision": revision,
            "vendor": self.vendor,
            "version": self.version,
        }
        return {f"org.opencontainers.image.{name}": value for name, value in values.items() if value}


def load_catalogue(path: Path = FILE) -> Catalogue:
    """Read the images of ``images.toml``, and those that are no service."""
    table = tomllib.loads(path.read_text("utf-8"))
    images = {
        name: Image(
            name=name,
            title=entry["title"],
            about=entry["about"],
            base=entry["base"],
            command=tuple(entry["command"]),
            port=entry.get("port", 0),
            metrics_port=entry.get("metrics_port", 0),
            environment=entry.get("environment", {}),
            max_mb=entry.get("max_mb", 0),
            is_separate=entry.get("separate", False),
        )
        for name, entry in table["image"].items()
    }
    images[POSTGRES] = Image(
        POSTGRES, "Undercroft postgres", "Postgres 17 with pgvector, for trials.", POSTGRES, max_mb=150
    )
    images[MODEL] = Image(MODEL, "Undercroft demo model", "all-MiniLM-L6-v2, prepared, in /models.", "", max_mb=100)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return Catalogue(images, table["epoch_s"], table["vendor"], table["description"], project["version"])
