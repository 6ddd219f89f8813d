"""Dependencies are read from the wheel directory, never imported or run; tiers decide what of them is embedded."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import grpc
import pytest
from undercroft.common.v1 import common_pb2
from undercroft.ingest.v1 import project_pb2, project_service_pb2

from services.core.notifications import OPERATIONS
from tests.support.appliance import Appliance
from tests.support.waiting import until

MODULE = '''"""Waterproof {name} of version {version}."""

raise SystemExit("this package was run")


def public_{name}():
    """Return the {name} of version {version}."""
    return _private()


def _private():
    return "{name} {version}"


class Tool:
    """A tool for {name}."""

    def use(self):
        return "used {name}"
'''


def module(name: str, version: str) -> str:
    return MODULE.format(name=name, version=version)


def write_wheel(folder: Path, name: str, version: str) -> Path:
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", module(name, version))
        archive.writestr(f"{name}/notes.md", f"# Notes\n\nHow to keep {name} dry.\n")
        archive.writestr(f"{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")
        archive.writestr(f"{name}-{version}.dist-info/RECORD", "")
    return path


def write_sdist(folder: Path, name: str, version: str) -> Path:
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in {f"src/{name}/__init__.py": module(name, version), "setup.py": "raise SystemExit\n"}.items():
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def wheels(appliance: Appliance) -> Path:
    return appliance.home / "wheels"


def sources(appliance: Appliance, project: str) -> dict[str, project_pb2.Source]:
    listed = appliance.client.projects.ListSources(project_service_pb2.ListSourcesRequest(parent=f"projects/{project}"))
    return {one.package: one for one in listed.sources}


def packages_of(appliance: Appliance, project: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for chunk in appliance.export(project):
        counts[chunk.place.package] = counts.get(chunk.place.package, 0) + 1
    return counts


def test_declared_packages_are_indexed_from_wheels_and_sdists(
    appliance: Appliance, wheels: Path, tmp_path: Path
) -> None:
    write_wheel(wheels, "umbrella", "1.0")
    write_wheel(wheels, "umbrella", "2.0")
    write_sdist(wheels, "raincoat", "3.1")
    write_wheel(wheels, "unwanted", "1.0")
    app = tmp_path / "app"
    app.mkdir()
    (app / "main.py").write_text('def stay_dry():\n    """Open the umbrella."""\n    return 1\n')
    (app / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\ndependencies = ["umbrella<2", "raincoat", "galoshes>=4"]\n'
    )
    appliance.create_project("dry", [app])
    assert set(packages_of(appliance, "dry")) == set()
    assert appliance.index("dry").warnings == []
    assert set(packages_of(appliance, "dry")) == {"app"}

    appliance.update_project("dry", index_dependencies=True)
    report = appliance.index("dry")
    assert [one for one in report.warnings if "galoshes" in one]
    assert set(packages_of(appliance, "dry")) == {"app", "umbrella", "raincoat"}
    managed = sources(appliance, "dry")
    assert managed["umbrella"].wheel.file == "umbrella-1.0-py3-none-any.whl"
    assert managed["umbrella"].managed
    assert managed["umbrella"].tier == project_pb2.TIER_DOC_PAGES

    # All of a dependency is found by its words, what documents it by its meaning too.
    in_umbrella = common_pb2.Filter(packages=["umbrella"])
    lexical = appliance.search("used umbrella", "dry", preset="lexical", filter=in_umbrella)
    assert [hit.qualified_name for hit in lexical.hits][:1] == ["umbrella.Tool.use"]
    dense = appliance.search("umbrella", "dry", preset="dense", filter=in_umbrella, page_size=100)
    assert {hit.qualified_name for hit in dense.hits if hit.language == "python"} == {
        "umbrella",
        "umbrella.public_umbrella",
        "umbrella.Tool",
    }
    assert any(hit.language == "markdown" for hit in dense.hits)

    # Nothing changed: nothing is unpacked, read or embedded.
    again = appliance.index("dry")
    assert (again.files.read, again.published, again.embeddings.embedded) == (0, False, 0)


def test_another_version_replaces_a_dependency_and_embeds_only_what_differs(
    appliance: Appliance, wheels: Path, tmp_path: Path
) -> None:
    write_wheel(wheels, "galosh", "1.0")
    app = tmp_path / "walker"
    app.mkdir()
    (app / "requirements.txt").write_text("galosh==1.0\n")
    appliance.create_project("walk", [app])
    appliance.update_project("walk", index_dependencies=True)
    appliance.index("walk")
    write_wheel(wheels, "galosh", "1.1")
    (app / "requirements.txt").write_text("galosh==1.1\n")
    report = appliance.index("walk")
    assert report.published
    # The requirements file, the metadata, the module and its function name their version; the class and notes do not.
    assert report.embeddings.embedded == 4
    assert sources(appliance, "walk")["galosh"].wheel.file == "galosh-1.1-py3-none-any.whl"

    (app / "requirements.txt").write_text("")
    gone = appliance.index("walk")
    assert "galosh" not in sources(appliance, "walk")
    assert "galosh" not in packages_of(appliance, "walk")
    assert gone.files.deleted > 0


def test_tiers_are_changed_by_globs_and_embed_only_what_is_new(
    appliance: Appliance, wheels: Path, tmp_path: Path
) -> None:
    write_wheel(wheels, "poncho", "1.0")
    app = tmp_path / "hiker"
    app.mkdir()
    (app / "requirements.txt").write_text("poncho\n")
    appliance.create_project("hike", [app])
    appliance.update_project("hike", index_dependencies=True)
    pages = appliance.index("hike").embeddings
    none = [project_pb2.TierRule(package_glob="pon*", tier=project_pb2.TIER_NONE)]
    appliance.update_project("hike", tiers=none)
    nothing = appliance.index("hike")
    assert (nothing.published, nothing.embeddings.embedded) == (True, 0)
    assert sources(appliance, "hike")["poncho"].tier == project_pb2.TIER_NONE
    assert nothing.embeddings.texts == 0
    assert appliance.search("used poncho", "hike", preset="lexical").hits
    full = [project_pb2.TierRule(package_glob="poncho", tier=project_pb2.TIER_FULL), *none]
    appliance.update_project("hike", tiers=full)
    whole = appliance.index("hike")
    # Pages are in the cache (and the text of the own file): the private function and the method are not.
    assert whole.embeddings.embedded == whole.embeddings.texts - (pages.texts - 1) == 2
    appliance.update_project("hike", tiers=[])
    assert appliance.index("hike").embeddings.embedded == 0


def test_equal_packages_of_two_projects_are_embedded_once(appliance: Appliance, wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, "sunhat", "1.0")
    embedded = []
    for name in ("north", "south"):
        app = tmp_path / name
        app.mkdir()
        (app / "requirements.txt").write_text("sunhat\n")
        appliance.create_project(name, [app])
        appliance.update_project(name, index_dependencies=True)
        embedded.append(appliance.index(name).embeddings.embedded)
    assert embedded[0] > 0
    assert embedded[1] <= 1, "only the requirements file, whose title is the same, may differ"


def test_a_wheel_is_a_source_of_its_own(appliance: Appliance, wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, "parasol", "1.0")
    appliance.create_project("shade", [])

    def create(file: str) -> project_pb2.Source:
        source = project_pb2.Source(package="parasol", wheel=project_pb2.WheelOrigin(file=file))
        request = project_service_pb2.CreateSourceRequest(parent="projects/shade", source_id="parasol", source=source)
        created: project_pb2.Source = appliance.client.projects.CreateSource(request)
        return created

    for hostile in ("../appliance.json", "/etc/passwd", "parasol", "missing-1.0-py3-none-any.whl"):
        with pytest.raises(grpc.RpcError) as refused:
            create(hostile)
        assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    assert create("parasol-1.0-py3-none-any.whl").wheel.file == "parasol-1.0-py3-none-any.whl"
    report = appliance.index("shade")
    assert report.published
    assert appliance.search("public_parasol", "shade").hits[0].qualified_name == "parasol.public_parasol"

    # What was added by hand is not added again as a dependency.
    app = tmp_path / "beach"
    app.mkdir()
    (app / "requirements.txt").write_text("parasol\n")
    appliance.add_source("shade", app)
    appliance.update_project("shade", index_dependencies=True)
    assert appliance.index("shade").published
    assert not sources(appliance, "shade")["parasol"].managed

    path = wheels / "parasol-1.0-py3-none-any.whl"
    path.write_bytes(path.read_bytes()[:100])
    appliance.index("shade")
    status = appliance.status("shade")
    assert status.snapshot.stale
    assert "parasol" in status.snapshot.stale_reason
    assert appliance.search("public_parasol", "shade").hits, "a damaged archive keeps what is indexed"


def test_another_file_of_equal_size_and_time_is_another_file(
    appliance: Appliance, wheels: Path, tmp_path: Path
) -> None:
    """Layers of images have one time for all files: size and time say nothing of a file that has another name."""
    times = (1_600_000_000, 1_600_000_000)
    for version in ("1.0", "1.1"):
        os.utime(write_wheel(wheels, "bonnet", version), times)
    assert len({path.stat().st_size for path in wheels.glob("bonnet-*")}) == 1
    app = tmp_path / "milliner"
    app.mkdir()
    (app / "requirements.txt").write_text("bonnet==1.0\n")
    appliance.create_project("hats", [app])
    appliance.update_project("hats", index_dependencies=True)
    appliance.index("hats")
    (app / "requirements.txt").write_text("bonnet==1.1\n")
    assert appliance.index("hats").published
    texts = [chunk.text for chunk in appliance.export("hats") if chunk.place.package == "bonnet"]
    assert any("version 1.1" in text for text in texts)
    assert not any("version 1.0" in text for text in texts)


def test_a_run_that_was_overtaken_takes_no_dependency_from_its_successor(
    appliance: Appliance, wheels: Path, tmp_path: Path
) -> None:
    path = wheels / "oilskin-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(300):
            archive.writestr(f"oilskin/part_{number}.py", module("oilskin", str(number)))
    app = tmp_path / "sailor"
    app.mkdir()
    (app / "requirements.txt").write_text("oilskin\n")
    appliance.create_project("sea", [app], model="")
    appliance.update_project("sea", index_dependencies=True)
    operation = appliance.start_index("sea")
    run = int(operation.rpartition("/")[2])
    with appliance.connect_database() as database:
        database.autocommit = True
        staged = "SELECT count(*) FROM staged_files WHERE run_id = %s"
        until(lambda: database.execute(staged, (run,)).fetchone()[0] >= 64)  # type: ignore[index]
        database.execute(
            """
            SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
            WHERE a.application_name = 'undercroft-claim'
              AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory')
            """
        )
        # Another worker looks at once, not when its turn comes.
        database.execute(f"NOTIFY {OPERATIONS}")
    report = appliance.wait(operation)
    assert report.attempts > 1
    assert appliance.status("sea").files == 301
    assert not appliance.index("sea", verify=True).published
