from __future__ import annotations

import pytest

from services.ingest.modules import ModuleRoots, is_package

PATHS = [
    "src/pkg/__init__.py", "src/pkg/sub/__init__.py", "src/pkg/sub/mod.py", "src/pkg/plain/x.py", "src/single.py",
    "src/ns/inner/__init__.py", "lib/sqlalchemy/__init__.py", "setup.py", "tests/test_a.py", "tools/__init__.py",
    "vendor/dep/__init__.py",
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("src/pkg/__init__.py", "pkg"),
        ("src/pkg/sub/mod.py", "pkg.sub.mod"),
        ("src/pkg/sub/stub.pyi", "pkg.sub.stub"),
        ("src/pkg/plain/x.py", "pkg.plain.x"),
        ("src/single.py", "single"),
        ("src/ns/inner/a.py", "ns.inner.a"),
        ("lib/sqlalchemy/orm.py", "sqlalchemy.orm"),
        ("setup.py", "setup"),
        ("tests/test_a.py", "tests.test_a"),
        ("tools/x.py", "tools.x"),
        ("vendor/dep/y.py", "dep.y"),
    ],
)
def test_modules_are_named_as_they_are_imported(path: str, module: str) -> None:
    assert ModuleRoots.of(PATHS).module(path) == module


def test_a_root_that_is_a_package_lends_its_name() -> None:
    roots = ModuleRoots.of(["__init__.py", "api.py", "sub/__init__.py"], "requests")
    assert [roots.module(path) for path in ("__init__.py", "api.py", "sub/__init__.py", "sub/x.py")] == [
        "requests",
        "requests.api",
        "requests.sub",
        "requests.sub.x",
    ]


def test_a_root_that_is_no_package_lends_nothing() -> None:
    assert ModuleRoots.of(["a.py"], "checkout").module("a.py") == "a"


def test_packages_are_told_by_their_file() -> None:
    assert is_package("a/__init__.py")
    assert is_package("__init__.pyi")
    assert not is_package("a/my__init__.py")
