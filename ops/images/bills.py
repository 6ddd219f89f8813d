"""Bills of materials of an image, in SPDX and CycloneDX: Debian packages, distributions, models.

A licence is declared where what is stated is a valid SPDX expression; else what is stated is told beside it. Written by
the reference libraries of both formats. The same image gives the same bytes.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component as CycloneDxComponent
from cyclonedx.model.component import ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from spdx_tools.common.spdx_licensing import spdx_licensing  # type: ignore[import-untyped]
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

from ops.images.components import Component
from ops.images.contents import Contents
from ops.images.licences import debian_expression, spdx_expression
from services.core.errors import DataLoss

_NAMESPACE = uuid.UUID("6f2f7c3e-6b0f-5d55-9d0c-52d3a1f7a1c4")


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that an image is made of, as both formats tell it.

    ``expression`` is a valid SPDX expression, and ``stated`` what is stated of licences where that is none.
    """

    kind: ComponentType
    name: str
    version: str = ""
    purl: PackageURL | None = None
    expression: str = ""
    stated: tuple[str, ...] = ()
    comment: str = ""
    sha256: str = ""
    inner: tuple[Part, ...] = ()


def parts(contents: Contents) -> Iterator[Part]:
    """Yield what is in an image, each thing once."""
    release = contents.os_release
    distro = f"{release.get('ID', 'debian')}-{release.get('VERSION_ID', '')}".rstrip("-")
    for package in contents.os_packages:
        qualifiers = {"arch": package.architecture, "distro": distro}
        if package.source != package.name:
            qualifiers["upstream"] = package.source
        expression = debian_expression(package.licences)
        yield Part(
            ComponentType.LIBRARY,
            package.name,
            package.version,
            PackageURL("deb", "debian", package.name, package.version, qualifiers),
            expression,
            () if expression else package.licences,
            f"Licences are those of the whole source package; in the image: /usr/share/doc/{package.name}/copyright",
        )
    for one in contents.distributions:
        name = one.name.lower().replace("_", "-")
        native = (Part(ComponentType.FILE, path, sha256=digest) for path, digest in one.bundled.items())
        yield Part(
            ComponentType.LIBRARY,
            name,
            one.version,
            PackageURL("pypi", None, name, one.version),
            *_licence(one.licence),
            inner=(*native, *map(_of_wheel, one.components)),
        )
    for model in contents.models:
        yield Part(
            ComponentType.MACHINE_LEARNING_MODEL,
            model.name,
            model.digest,
            None,
            *_licence(model.licence),
            "The version is the model's digest; the SHA-256 is that of manifest.json, which has those of all files.",
            model.manifest_sha256,
        )


def _of_wheel(component: Component) -> Part:
    purl = PackageURL.from_string(component.purl) if component.purl else None
    return Part(ComponentType.LIBRARY, component.name, component.version, purl, *_licence(component.licence))


def _licence(stated: str) -> tuple[str, tuple[str, ...]]:
    """Return a valid expression, or else what is stated."""
    expression = spdx_expression(stated)
    return expression, (stated,) if stated and not expression else ()


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
    pending = [(image_id, f"SPDXRef-{number}", part) for number, part in enumerate(found)]
    for holder_id, part_id, part in pending:
        packages.append(_package(part_id, part))
        relationships.append(Relationship(holder_id, RelationshipType.CONTAINS, part_id))
        pending += [(part_id, f"{part_id}-{count}", one) for count, one in enumerate(part.inner)]
    info = CreationInfo(
        "SPDX-2.3",
        "SPDXRef-DOCUMENT",
        f"undercroft-{name}",
        f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'spdx {contents.digest}')}",
        [Actor(ActorType.TOOL, "undercroft ops.images")],
        created.replace(tzinfo=None),
    )
    return Document(info, packages=packages, relationships=relationships)


def _package(part_id: str, part: Part) -> Package:
    stated = f"Licence as stated: {'; '.join(part.stated)}" if part.stated else ""
    package = Package(
        part_id,
        part.name,
        SpdxNoAssertion(),
        version=part.version or None,
        files_analyzed=False,
        license_declared=spdx_licensing.parse(part.expression) if part.expression else SpdxNoAssertion(),
        comment=". ".join(text for text in (stated, part.comment) if text) or None,
    )
    if part.purl:
        category = ExternalPackageRefCategory.PACKAGE_MANAGER
        package.external_references = [ExternalPackageRef(category, "purl", part.purl.to_string())]
    if part.sha256:
        package.checksums = [Checksum(ChecksumAlgorithm.SHA256, part.sha256)]
    return package


def _cyclonedx(contents: Contents, found: list[Part], name: str, version: str, created: datetime.datetime) -> Bom:
    bom = Bom(serial_number=uuid.uuid5(_NAMESPACE, f"cyclonedx {contents.digest}"))
    bom.metadata.timestamp = created
    image = CycloneDxComponent(
        type=ComponentType.CONTAINER,
        name=f"undercroft/{name}",
        version=version,
        bom_ref="image",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=contents.digest.removeprefix("sha256:"))],
    )
    bom.metadata.component = image
    components = [
        _component(part, part.purl.to_string() if part.purl else f"part-{number}") for number, part in enumerate(found)
    ]
    for component in components:
        bom.components.add(component)
        bom.register_dependency(component)
    bom.register_dependency(image, components)
    return bom


def _component(part: Part, ref: str) -> CycloneDxComponent:
    licences: list[License] = [DisjunctiveLicense(name=name) for name in part.stated]
    if part.expression:
        licences = [LicenseFactory().make_from_string(part.expression)]
    return CycloneDxComponent(
        type=part.kind,
        name=part.name,
        version=part.version or None,
        purl=part.purl,
        bom_ref=ref,
        licenses=licences,
        description=part.comment or None,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else [],
        components=[_component(one, f"{ref}-{count}") for count, one in enumerate(part.inner)],
    )
