"""A project of several languages: definitions are found by name, references lead across files and languages."""

from __future__ import annotations

import pytest
from undercroft.common.v1 import common_pb2
from undercroft.search.v1 import search_service_pb2

from tests.support.appliance import Appliance

FILES = {
    "web/src/client.ts": "import { Socket } from './socket';\n\n/** Talks to the server. */\n"
    "export class Client extends Socket {\n  send(message: string) {\n    this.open(message);\n  }\n}\n",
    "web/src/socket/index.ts": "export class Socket {\n  open(message: string) {\n    return message;\n  }\n}\n",
    "server/store/store.go": "package store\n\n// Store keeps items.\ntype Store struct{}\n\n"
    "// Get returns an item.\nfunc (s *Store) Get(key string) int { return lookup(key) }\n",
    "server/store/lookup.go": "package store\n\nfunc lookup(key string) int { return 1 }\n",
    "core/src/lib.rs": "pub struct Ledger;\n\nimpl Ledger {\n    /// Books an amount.\n"
    "    pub fn book(&self) -> u8 { crate::audit::write_entry() }\n}\n",
    "core/src/audit.rs": "pub fn write_entry() -> u8 { 1 }\n",
    "broken/half.java": "class Half {\n  int whole() { return 1; }\n  int half( { }\n}\n",
}


@pytest.fixture(scope="module")
def project(appliance: Appliance, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("languages") / "polyglot"
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    appliance.create_project("languages", [folder])
    report = appliance.index("languages")
    assert report.files.new == len(FILES)
    return "languages"


def references(appliance: Appliance, project: str, symbol: str) -> list[tuple[str, bool]]:
    response = appliance.client.search.ListReferences(
        search_service_pb2.ListReferencesRequest(symbol=symbol, projects=[f"projects/{project}"], page_size=100)
    )
    assert response.symbols, symbol
    return [(one.source_symbol, one.resolved) for one in response.references]


def test_references_are_resolved_where_imports_tell_and_known_by_name_elsewhere(
    appliance: Appliance, project: str
) -> None:
    assert ("web.src.client.Client", True) in references(appliance, project, "Socket")
    assert ("web.src.client", True) in references(appliance, project, "Socket")
    assert ("core.Ledger.book", True) in references(appliance, project, "audit::write_entry")
    assert ("server.store.Store.Get", False) in references(appliance, project, "lookup")


@pytest.mark.parametrize(
    ("name", "qualified_name"),
    [
        ("Client.send", "web.src.client.Client.send"),
        ("(*Store).Get", "server.store.Store.Get"),
        ("Ledger::book", "core.Ledger.book"),
        ("Half.whole", "Half.whole"),
    ],
)
def test_a_name_is_found_as_its_language_writes_it(
    appliance: Appliance, project: str, name: str, qualified_name: str
) -> None:
    request = search_service_pb2.ListSymbolsRequest(name=name, projects=[f"projects/{project}"])
    assert [one.qualified_name for one in appliance.client.search.ListSymbols(request).symbols] == [qualified_name]
    hit = appliance.search(name, project).hits[0]
    assert hit.qualified_name == qualified_name
    assert hit.kind == common_pb2.CHUNK_KIND_METHOD
    assert hit.text == "\n".join(
        FILES[hit.place.path].split("\n")[hit.place.span.start_line - 1 : hit.place.span.end_line]
    )
