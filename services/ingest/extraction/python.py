"""Python by ``ast``; where this interpreter's parser refuses a file, by tree-sitter.

That grammar knows Python 2 and syntax newer than the interpreter, and recovers from errors. Then only imports are
resolved; names and spans are as from ``ast``.
"""

from __future__ import annotations

import ast
import warnings

from services.ingest.chunks import Budget, Extraction, Note, Reference, ReferenceKind, Symbol, SymbolKind, bounded
from services.ingest.extraction.definitions import Definition
from services.ingest.extraction.partition import Naming, Partition, symbols_of
from services.ingest.extraction.pythontree import finish, from_tree
from services.ingest.extraction.references import Bindings, imports_of_lines
from services.ingest.extraction.typeparameters import without_type_parameters
from services.ingest.modules import is_package
from services.ingest.sniffing import split_lines


def extract_python(path: str, text: str, *, module: str, budget: Budget) -> Extraction:
    """Extract one Python file; ``text`` has LF line ends."""
    lines = split_lines(text)
    notes: list[Note] = []
    references: list[Reference] = []
    variables: list[Symbol] = []
    tree = _parse(text, notes)
    if tree is None:
        root, ranks = _recovered(text, lines)
        imports = imports_of_lines(lines, module, package=is_package(path))
        references += [Reference(module, ReferenceKind.IMPORT, target, True, line) for line, target in imports]
    else:
        root, ranks = from_tree(tree, lines)
        bindings = Bindings(tree, module, package=is_package(path))
        references += bindings.references()
        variables = [
            Symbol(SymbolKind.VARIABLE, name, f"{module}.{name}" if module else name, "", "", start, end, "")
            for name, start, end in bindings.variables()
        ]
    naming = Naming(module, module, module or path)
    units = Partition(root, lines, naming, budget).units()
    chunks, size_notes = bounded(units, lines, ranks, budget, path=path, language="python", module=module)
    symbols = symbols_of(root, variables, naming, path, len(lines))
    return Extraction(path, "python", module, chunks, symbols, tuple(references), (*notes, *size_notes))


def _recovered(text: str, lines: list[str]) -> tuple[Definition, list[int]]:
    """Find the definitions of a file that does not parse."""
    from services.ingest.extraction.captures import capture
    from services.ingest.extraction.grammars import grammar_of
    from services.ingest.extraction.syntax import build

    data = text.encode("utf-8", "replace")
    grammar = grammar_of("python")
    syntax = build(capture(data, grammar), data, lines, grammar)
    finish(syntax.root, lines)
    return syntax.root, syntax.ranks


def _parse(text: str, notes: list[Note]) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes of other people's code
        try:
            return ast.parse(text)
        except SyntaxError as error:
            first = error
        except (RecursionError, MemoryError):  # MemoryError is what the parser raises when its own stack is full
            notes.append(Note("not_parsed", "nested too deeply, or too large, for the parser"))
            return None
        except ValueError as error:
            notes.append(Note("not_parsed", f"ValueError: {error}"))
            return None
        relaxed = without_type_parameters(text)
        if relaxed is not None:
            try:
                tree = ast.parse(relaxed)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                pass
            else:
                notes.append(Note("type_parameters_dropped", "type parameters need a later Python", first.lineno or 0))
                return tree
    notes.append(Note("not_parsed", f"SyntaxError: {first.msg}", first.lineno or 0))
    return None
