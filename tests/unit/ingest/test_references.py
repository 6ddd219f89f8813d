from __future__ import annotations

import textwrap

from services.ingest.extraction import extract
from services.ingest.extraction.tokens import estimate_tokens


def edges(text: str, *, path: str = "pkg/mod.py", module: str = "pkg.mod") -> set[tuple[str, str, str, bool]]:
    extraction = extract(path, textwrap.dedent(text), module=module, count_tokens=estimate_tokens, budget_tokens=254)
    assert not extraction.notes, extraction.notes
    return {(edge.source, edge.kind.value, edge.target, edge.resolved) for edge in extraction.references}


def calls(text: str) -> set[tuple[str, str, bool]]:
    return {(source, target, resolved) for source, kind, target, resolved in edges(text) if kind == "call"}


def test_imports_are_absolute() -> None:
    found = edges("""
        import os.path, json as j
        from .near import thing as t
        from .. import up
        from ..far.away import *
        from ... import beyond
        def f():
            import late
        """)
    assert found == {
        ("pkg.mod", "import", "os.path", True),
        ("pkg.mod", "import", "json", True),
        ("pkg.mod", "import", "pkg.near.thing", True),
        ("pkg.mod", "import", "..up", False),
        ("pkg.mod", "import", "..far.away", False),
        ("pkg.mod", "import", "...beyond", False),
        ("pkg.mod.f", "import", "late", True),
    }


def test_relative_imports_of_a_package_start_at_itself() -> None:
    found = edges("from .a import b\nfrom ..c import d\n", path="x/y/__init__.py", module="x.y")
    assert found == {("x.y", "import", "x.y.a.b", True), ("x.y", "import", "x.c.d", True)}


def test_calls_resolve_through_imports_and_local_definitions() -> None:
    found = calls("""
        import os.path, numpy as np
        from .near import thing as t
        def helper(): pass
        def f(json):
            os.path.join("a")
            np.linalg.norm(1)
            t.make()
            t()
            helper()
            json.loads("")
            len([])
            nowhere()
            def inner(): helper()
            inner()
        """)
    assert found == {
        ("pkg.mod.f", "os.path.join", True),
        ("pkg.mod.f", "numpy.linalg.norm", True),
        ("pkg.mod.f", "pkg.near.thing.make", True),
        ("pkg.mod.f", "pkg.near.thing", True),
        ("pkg.mod.f", "pkg.mod.helper", True),
        ("pkg.mod.f", "loads", False),
        ("pkg.mod.f", "nowhere", False),
        ("pkg.mod.f", "pkg.mod.f.inner", True),
        ("pkg.mod.f.inner", "pkg.mod.helper", True),
    }


def test_methods_resolve_through_self_super_and_bases_of_the_file() -> None:
    found = calls("""
        from lib import Remote
        class Base:
            def shared(self): pass
        class Child(Base, Remote):
            def own(self):
                self.own()
                self.shared()
                self.unknown()
                super().shared()
                super().remote()
                self.attr.deep.call()
            @classmethod
            def make(cls):
                cls.own()
                def nested():
                    cls.shared()
            @staticmethod
            def free(x):
                x.own()
        """)
    assert found == {
        ("pkg.mod.Child.own", "pkg.mod.Child.own", True),
        ("pkg.mod.Child.own", "pkg.mod.Base.shared", True),
        ("pkg.mod.Child.own", "pkg.mod.Child.unknown", False),
        ("pkg.mod.Child.own", "pkg.mod.Base.remote", False),
        ("pkg.mod.Child.own", "call", False),
        ("pkg.mod.Child.make", "pkg.mod.Child.own", True),
        ("pkg.mod.Child.make.nested", "pkg.mod.Base.shared", True),
        ("pkg.mod.Child.free", "own", False),
    }


def test_receivers_resolve_through_annotations_and_constructors() -> None:
    found = calls("""
        from lib import Client
        class Local:
            def go(self): pass
        class User:
            def __init__(self, other: "Local | None"):
                self.client = Client()
                self.local: Local = other
            def run(self, given: Client | None, strange):
                made = Local()
                made.go()
                given.send()
                self.client.send()
                self.local.go()
                Local().go()
                strange.send()
                either = Local() if given else Client()
                either.go()
                twice = Local()
                twice = Client()
                twice.go()
        """)
    run = {(target, resolved) for source, target, resolved in found if source == "pkg.mod.User.run"}
    assert run == {
        ("pkg.mod.Local", True),
        ("lib.Client", True),
        ("pkg.mod.Local.go", True),
        ("lib.Client.send", True),
        ("send", False),
        ("go", False),
    }


def test_bases_and_decorators_are_edges_of_their_definition() -> None:
    found = edges("""
        import functools
        from lib import Base, registry
        @registry.add(Base)
        class A(Base[int], Exception):
            @functools.cache
            @property
            def f(self): pass
        """)
    assert {edge for edge in found if edge[1] != "import"} == {
        ("pkg.mod.A", "decorate", "lib.registry.add", True),
        ("pkg.mod.A", "inherit", "lib.Base", True),
        ("pkg.mod.A", "inherit", "builtins.Exception", True),
        ("pkg.mod.A.f", "decorate", "functools.cache", True),
    }


def test_a_fallback_assignment_does_not_hide_an_import() -> None:
    found = calls("""
        try:
            import fast
        except ImportError:
            fast = None
        def f():
            fast.run()
        """)
    assert found == {("pkg.mod.f", "fast.run", True)}


def test_a_global_is_the_modules() -> None:
    found = calls("""
        def target(): pass
        def f():
            global target
            target = wrap(target)
            target()
        """)
    assert ("pkg.mod.f", "pkg.mod.target", True) in found


def test_edges_come_in_the_order_of_lines_and_name_their_line() -> None:
    extraction = extract("m.py", "a.x()\n\nb.y()\n", module="m", count_tokens=estimate_tokens, budget_tokens=254)
    assert [(edge.target, edge.line) for edge in extraction.references] == [("x", 1), ("y", 3)]


def test_classes_that_inherit_from_each_other_end() -> None:
    text = "class A(B):\n    def f(self): self.g()\nclass B(A):\n    def h(self): self.f()\n"
    assert ("pkg.mod.B.h", "pkg.mod.A.f", True) in calls(text)
