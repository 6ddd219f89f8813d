"""Bills of materials of an image, in SPDX and CycloneDX: Debian packages, distributions, models.

Written by the reference libraries of both formats. The same image gives the same bytes.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    Package,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
from spdx_tools.spdx.writer.json.json_writer import write_document_to_file

from ops.images.contents import Contents
from services.core.errors import DataLoss

_NAMESPACE = uuid.UUID("6f2f7c3e-6b0f-5d55-9d0c-52d3a1f7a1c4")
_MODEL_LICENCE = "Apache-2.0"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that an image is made of, as both formats tell it."""

    kind: ComponentType
    name: str
    version: str
    purl: PackageURL | None
    licence: str = ""
    comment: str = ""
    sha256: str = ""
    bundled: dict[str, str] = field(default_factory=dict)


def parts(contents: Contents) -> Iterator[Part]:
    """Yield what is in an image, each thing once."""
    release = contents.os_release
    distro = f"{release.get('ID', 'debian')}-{release.get('VERSION_ID', '')}".rstrip("-")
    for package in contents.os_packages:
        qualifiers = {"arch": package.architecture, "distro": distro}
        if package.source != package.name:
            qualifiers["upstream"] = package.source
        yield Part(
            ComponentType.LIBRARY,
            package.name,
            package.version,
            PackageURL("deb", "debian", package.name, package.version, qualifiers),
            comment=f"Licence text in the image: /usr/share/doc/{package.name}/copyright",
        )
    for one in contents.distributions:
        name = one.name.lower().replace("_", "-")
        purl = PackageURL("pypi", None, name, one.version)
        yield Part(ComponentType.LIBRARY, name, one.version, purl, one.licence, bundled=dict(one.bundled))
    for model in contents.models:
        yield Part(
            ComponentType.MACHINE_LEARNING_MODEL,
            model.name,
            model.digest[:12],
            None,
            _MODEL_LICENCE,
            "The digest is that of manifest.json, which has the SHA-256 of every file of the model.",
            model.digest,
        )


def write_bills(contents: Contents, name: str, version: str, epoch_s: int, folder: Path) -> tuple[Path, Path]:
    """Write ``NAME.spdx.json`` and ``NAME.cdx.json``; returns both paths.

    Raises ``DataLoss`` where the SPDX library finds its document not valid.
    """
    folder.mkdir(parents=True, exist_ok=True)
    created = datetime.datetime.fromtimestamp(epoch_s, datetime.UTC)
    found = sorted(parts(contents), key=lambda part: (part.purl.to_string() if part.purl else "", part.name))
    spdx, cyclonedx = folder / f"{name}.spdx.json", folder / f"{name}.cdx.json"
    document = _spdx(contents, found, name, version, created)
    if problems := validate_full_spdx_document(document, "SPDX-2.3"):
        raise DataLoss(f"The SPDX document of {name} is not valid: {problems[0].validation_message}")
    write_document_to_file(document, str(spdx), validate=False)
    bom = json.loads(JsonV1Dot6(_cyclonedx(contents, found, name, version, created)).output_as_string())
    cyclonedx.write_text(json.dumps(bom, indent=1, sort_keys=True) + "\n", "utf-8")
    return spdx, cyclonedx


def _spdx(contents: Contents, found: list[Part], name: str, version: str, created: datetime.datetime) -> Document:
    image_id = "SPDXRef-image"
    packages = [
        Package(
            image_id,
            f"undercroft/{name}",
            SpdxNoAssertion(),
            version=version,
            files_analyzed=False,
            checksums=[Checksum(ChecksumAlgorithm.SHA256, contents.digest.removeprefix("sha256:"))],
        )
    ]
    relationships = [Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, image_id)]
    for number, part in enumerate(found):
        part_id = f"SPDXRef-{number}"
        comment = "; ".join(text for text in (part.licence and f"Stated: {part.licence}", part.comment) if text)
        package = Package(
            part_id, part.name, SpdxNoAssertion(), version=part.version, files_analyzed=False, comment=comment or None
        )
        if part.purl:
            category = ExternalPackageRefCategory.PACKAGE_MANAGER
            package.external_references = [ExternalPackageRef(category, "purl", part.purl.to_string())]
        if part.sha256:
            package.checksums = [Checksum(ChecksumAlgorithm.SHA256, part.sha256)]
        packages.append(package)
        relationships.append(Relationship(image_id, RelationshipType.CONTAINS, part_id))
        for count, (path, digest) in enumerate(part.bundled.items()):
            bundled_id = f"{part_id}-{count}"
            checksums = [Checksum(ChecksumAlgorithm.SHA256, digest)]
            packages.append(Package(bundled_id, path, SpdxNoAssertion(), files_analyzed=False, checksums=checksums))
            relationships.append(Relationship(part_id, RelationshipType.CONTAINS, bundled_id))
    info = CreationInfo(
        "SPDX-2.3",
        "SPDXRef-DOCUMENT",
        f"undercroft-{name}",
        f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'spdx {contents.digest}')}",
        [Actor(ActorType.TOOL, "undercroft ops.images")],
        created.replace(tzinfo=None),
    )
    return Document(info, packages=packages, relationships=relationships)


def _cyclonedx(contents: Contents, found: list[Part], name: str, version: str, created: datetime.datetime) -> Bom:
    bom = Bom(serial_number=uuid.uuid5(_NAMESPACE, f"cyclonedx {contents.digest}"))
    bom.metadata.timestamp = created
    image = Component(
        type=ComponentType.CONTAINER,
        name=f"undercroft/{name}",
        version=version,
        bom_ref="image",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=contents.digest.removeprefix("sha256:"))],
    )
    bom.metadata.component = image
    components = [_component(part, number) for number, part in enumerate(found)]
    for component in components:
        bom.components.add(component)
        bom.register_dependency(component)
    bom.register_dependency(image, components)
    return bom


def _component(part: Part, number: int) -> Component:
    inner = [
        Component(
            type=ComponentType.FILE,
            name=path,
            bom_ref=f"part-{number}-{count}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        )
        for count, (path, digest) in enumerate(part.bundled.items())
    ]
    return Component(
        type=part.kind,
        name=part.name,
        version=part.version,
        purl=part.purl,
        bom_ref=part.purl.to_string() if part.purl else f"part-{number}",
        licenses=[DisjunctiveLicense(name=part.licence)] if part.licence else [],
        description=part.comment or None,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else [],
        components=inner,
    )
