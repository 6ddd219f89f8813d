"""Edges from Python definitions to the names that they use, resolved as far as one file can tell.

Names resolve through the scopes of the file: imports, local definitions, ``self`` and ``super()`` through the classes
of the file, and receivers whose class an annotation or a constructor call shows. What stays unknown is kept by its
last name. Calls of builtins and of plain local variables are no edges.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from services.ingest.chunks import Reference, ReferenceKind

_BUILTINS = frozenset(dir(builtins))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORT_LINE = re.compile(
    r"[ \t]*(?:from[ \t]+(?P<base>\.*[\w.]*)[ \t]+import[ \t]+(?P<names>[^#;]+)|import[ \t]+(?P<plain>[^#;]+))"
)
_ASSIGNMENTS = frozenset({ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.withitem})
_MAX_BASES = 64

Node = ast.AST


@dataclass(frozen=True, slots=True)
class _Binding:
    """What a name stands for: ``dotted`` where known; ``instance`` says that it is an object of that class."""

    dotted: str = ""
    instance: bool = False
    is_variable: bool = False


_UNKNOWN = _Binding()


@dataclass(slots=True)
class _Class:
    dotted: str
    bases: list[str]
    methods: set[str] = field(default_factory=set)
    attributes: dict[str, str] = field(default_factory=dict)  # of self: name to class


@dataclass(slots=True)
class _Scope:
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    dotted: str
    parent: _Scope | None
    owner: _Class | None = None  # the class around it, seen from its methods and what is nested in them
    receiver: str = ""  # the name of self or cls
    names: dict[str, _Binding] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    instances: list[tuple[ast.expr, ast.expr]] = field(default_factory=list)  # targets and what shows their class

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)


class Bindings:
    """The scopes of one file and what their names stand for."""

    def __init__(self, tree: ast.Module, module: str, *, package: bool) -> None:
        self._module = module
        self._package = module.split(".") if package else module.split(".")[:-1]
        self._classes: dict[str, _Class] = {}
        self._variables: dict[str, tuple[int, int]] = {}
        self._scopes: list[_Scope] = []
        pending = [_Scope(tree, module, None)]
        while pending:
            scope = pending.pop()
            self._scopes.append(scope)
            pending.extend(reversed(self._bind(scope)))
        for scope in self._scopes:
            self._infer(scope)

    def variables(self) -> list[tuple[str, int, int]]:
        """List the variables of the module with the lines of their first assignment."""
        return [(name, *lines) for name, lines in self._variables.items()]

    def references(self) -> list[Reference]:
        """List every edge in the order of lines."""
        found = [reference for scope in self._scopes for reference in self._of_scope(scope)]
        found.sort(key=lambda reference: (reference.line, reference.source, reference.kind, reference.target))
        return found

    # Binding

    def _bind(self, scope: _Scope) -> list[_Scope]:
        """Collect the nodes and names of one scope; return the scopes that it opens."""
        inner: list[_Scope] = []
        pending: list[Node] = list(reversed(self._first_nodes(scope)))
        outer_names: set[str] = set()
        while pending:
            node = pending.pop()
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                inner.append(self._open(node, scope))
                scope.nodes.append(node)
                pending.extend(reversed(_outer_expressions(node)))
                continue
            self._bind_node(node, scope, outer_names)
            pending.extend(reversed(_children(node)))
        for name in outer_names:
            scope.names.pop(name, None)
        return inner

    def _first_nodes(self, scope: _Scope) -> list[Node]:
        node = scope.node
        if isinstance(node, _FUNCTIONS):
            for argument in _arguments(node.args):
                scope.names[argument.arg] = _UNKNOWN
                if argument.annotation is not None:
                    scope.instances.append((ast.Name(argument.arg, ast.Store()), argument.annotation))
            positional = [*node.args.posonlyargs, *node.args.args]
            static = any(_last_name(decorator) == "staticmethod" for decorator in node.decorator_list)
            if scope.parent is not None and scope.parent.is_class and positional and not static:
                scope.receiver = positional[0].arg
        return list(node.body)

    def _open(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: _Scope) -> _Scope:
        dotted = f"{scope.dotted}.{node.name}" if scope.dotted else node.name
        scope.names[node.name] = _Binding(dotted)
        if isinstance(node, ast.ClassDef):
            owner = self._classes.setdefault(dotted, _Class(dotted, []))
        else:
            owner_class = scope.owner
            if scope.is_class and owner_class is not None:
                owner_class.methods.add(node.name)
            return _Scope(node, dotted, scope, owner_class)
        return _Scope(node, dotted, scope, owner)

    def _bind_node(self, node: Node, scope: _Scope, outer_names: set[str]) -> None:
        kind = type(node)
        if kind is ast.Name:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._bind_variable(node, scope)
        elif kind is ast.Call:
            scope.nodes.append(node)
        elif kind in _ASSIGNMENTS:
            self._bind_assignment(node, scope)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            scope.nodes.append(node)
            for name, target in self._names_bound(node):
                scope.names[name] = _Binding(target)
        elif isinstance(node, ast.arg):  # of a lambda
            scope.names.setdefault(node.arg, _UNKNOWN)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            outer_names.update(node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            scope.names[node.name] = _UNKNOWN

    def _bind_assignment(self, node: Node, scope: _Scope) -> None:
        """Note what shows the class of the targets, and the variables of the module."""
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
            scope.instances.extend((target, node.value) for target in targets)
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
            scope.instances.append((node.target, node.annotation))
        elif isinstance(node, ast.NamedExpr):
            scope.instances.append((node.target, node.value))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            scope.instances.append((node.optional_vars, node.context_expr))
        if scope.parent is None and isinstance(node, ast.stmt):
            for target in targets:
                if isinstance(target, ast.Name):
                    self._variables.setdefault(target.id, (node.lineno, node.end_lineno or node.lineno))

    def _bind_variable(self, node: ast.Name, scope: _Scope) -> None:
        known = scope.names.get(node.id)
        if known is not None and known.dotted and not known.is_variable:
            return  # "try: import x; except ImportError: x = None" still means x
        if scope.parent is None:
            dotted = f"{self._module}.{node.id}" if self._module else node.id
            scope.names[node.id] = _Binding(dotted, is_variable=True)
        else:
            scope.names[node.id] = _UNKNOWN

    def _infer(self, scope: _Scope) -> None:
        """Give classes their bases, and names the class that an annotation or a constructor call shows."""
        if isinstance(scope.node, ast.ClassDef) and scope.owner is not None and scope.parent is not None:
            for base in scope.node.bases:
                resolved = self._resolve(base, scope.parent)
                if resolved is not None and len(scope.owner.bases) < _MAX_BASES:
                    scope.owner.bases.append(resolved[0])
        shown_classes: dict[str, set[str]] = {}
        for target, shown in scope.instances:
            dotted = self._class_shown(shown, scope)
            if isinstance(target, ast.Name):
                shown_classes.setdefault(target.id, set()).add(dotted)
            elif (
                dotted
                and isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == scope.receiver
                and scope.owner is not None
            ):
                scope.owner.attributes.setdefault(target.attr, dotted)
        for name, classes in shown_classes.items():
            known = scope.names.get(name, _UNKNOWN)
            if len(classes) == 1 and "" not in classes and (not known.dotted or known.is_variable):
                scope.names[name] = _Binding(classes.pop(), instance=True)

    def _class_shown(self, shown: ast.expr, scope: _Scope) -> str:
        """Return the class that ``Class(...)`` or the annotation ``Class``, ``Class | None`` shows, or nothing."""
        if isinstance(shown, ast.Call):
            shown = shown.func
        if isinstance(shown, ast.BinOp) and isinstance(shown.op, ast.BitOr):
            sides = [side for side in (shown.left, shown.right) if not _is_none(side)]
            shown = sides[0] if len(sides) == 1 else shown
        if isinstance(shown, ast.Subscript) and _last_name(shown.value) == "Optional":
            shown = shown.slice
        if isinstance(shown, ast.Constant) and isinstance(shown.value, str) and shown.value.isidentifier():
            shown = ast.Name(shown.value, ast.Load())
        if not isinstance(shown, (ast.Name, ast.Attribute)):
            return ""
        resolved = self._resolve(shown, scope)
        if resolved is None or not resolved[1]:
            return ""
        # By convention alone (PEP 8): a function may return anything, a capitalised name is a class.
        last = resolved[0].rpartition(".")[2].lstrip("_")
        return resolved[0] if resolved[0] in self._classes or (last[:1].isupper() and not last.isupper()) else ""

    # Resolving

    def _of_scope(self, scope: _Scope) -> Iterator[Reference]:
        for node in scope.nodes:
            if isinstance(node, ast.Call):
                resolved = self._resolve(node.func, scope)
                if resolved is not None:
                    yield Reference(scope.dotted, ReferenceKind.CALL, *resolved, node.lineno)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                for target, known in self._imported(node):
                    yield Reference(scope.dotted, ReferenceKind.IMPORT, target, known, node.lineno)
            elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                dotted = f"{scope.dotted}.{node.name}" if scope.dotted else node.name
                for decorator in node.decorator_list:
                    named = decorator.func if isinstance(decorator, ast.Call) else decorator
                    resolved = self._resolve(named, scope)
                    if resolved is not None:
                        yield Reference(dotted, ReferenceKind.DECORATE, *resolved, decorator.lineno)
                if isinstance(node, ast.ClassDef):
                    for base in node.bases:
                        resolved = self._resolve(base, scope, builtin=True)
                        if resolved is not None:
                            yield Reference(dotted, ReferenceKind.INHERIT, *resolved, base.lineno)

    def _resolve(self, node: ast.expr, scope: _Scope, *, builtin: bool = False) -> tuple[str, bool] | None:
        """Return the full name that an expression stands for and True, or its last name and False, or None."""
        attributes: list[str] = []
        while True:
            if isinstance(node, ast.Attribute):
                attributes.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Subscript) and not attributes:
                node = node.value  # Generic[T]
            else:
                break
        attributes.reverse()
        if isinstance(node, ast.Name):
            return self._resolve_name(node.id, attributes, scope, builtin=builtin)
        if isinstance(node, ast.Call) and attributes:
            constructed = node.func
            if isinstance(constructed, ast.Name) and constructed.id == "super" and scope.owner is not None:
                return self._inherited(scope.owner, attributes)
            # One level only: resolving a chain of calls at every link would be quadratic.
            if len(attributes) == 1 and isinstance(constructed, (ast.Name, ast.Attribute)):
                dotted = self._class_shown(constructed, scope)
                if dotted:
                    return self._member(dotted, attributes)
        return (attributes[-1], False) if attributes else None

    def _resolve_name(
        self, name: str, attributes: list[str], scope: _Scope, *, builtin: bool
    ) -> tuple[str, bool] | None:
        if scope.owner is not None and attributes and name == _receiver(scope):
            return self._of_receiver(scope.owner, attributes)
        binding = _lookup(scope, name)
        if binding is None:
            if name in _BUILTINS:
                return (f"builtins.{name}", True) if builtin and not attributes else _by_last_name(attributes)
            return (attributes[-1] if attributes else name), False
        if not attributes:
            return (binding.dotted, True) if binding.dotted and not binding.instance else None
        if not binding.dotted or binding.is_variable:
            return attributes[-1], False
        if binding.instance or binding.dotted in self._classes:
            return self._member(binding.dotted, attributes)
        return ".".join([binding.dotted, *attributes]), True

    def _of_receiver(self, owner: _Class, attributes: list[str]) -> tuple[str, bool] | None:
        """Resolve what stands behind ``self``."""
        shown = self._attribute_class(owner, attributes[0])
        if len(attributes) > 1:
            return self._member(shown, attributes[1:]) if shown else (attributes[-1], False)
        found = self._find_method(owner, attributes[0])
        if found is None and shown:
            return None  # calls an object that is an attribute: there is no name to give
        return (found, True) if found is not None else (f"{owner.dotted}.{attributes[0]}", False)

    def _member(self, dotted: str, attributes: list[str]) -> tuple[str, bool]:
        known = self._classes.get(dotted)
        if len(attributes) > 1:
            if known is not None and (inner := self._attribute_class(known, attributes[0])):
                return self._member(inner, attributes[1:])
            if f"{dotted}.{attributes[0]}" in self._classes:
                return self._member(f"{dotted}.{attributes[0]}", attributes[1:])
            return attributes[-1], False
        if known is None:
            return f"{dotted}.{attributes[0]}", True
        found = self._find_method(known, attributes[0])
        return (found, True) if found is not None else (f"{dotted}.{attributes[0]}", False)

    def _inherited(self, owner: _Class, attributes: list[str]) -> tuple[str, bool]:
        if len(attributes) > 1 or not owner.bases:
            return attributes[-1], False
        for base in owner.bases:
            known = self._classes.get(base)
            found = self._find_method(known, attributes[0]) if known is not None else None
            if found is not None:
                return found, True
        first = owner.bases[0]
        return f"{first}.{attributes[0]}", first not in self._classes

    def _find_method(self, owner: _Class, name: str) -> str | None:
        for known in self._with_bases(owner):
            if name in known.methods or f"{known.dotted}.{name}" in self._classes:
                return f"{known.dotted}.{name}"
        return None

    def _attribute_class(self, owner: _Class, name: str) -> str:
        return next((known.attributes[name] for known in self._with_bases(owner) if name in known.attributes), "")

    def _with_bases(self, owner: _Class) -> Iterator[_Class]:
        """Yield a class and its bases within the file, nearest first."""
        seen = {owner.dotted}
        queue = [owner]
        for known in queue:
            yield known
            for base in known.bases:
                if base not in seen and base in self._classes:
                    seen.add(base)
                    queue.append(self._classes[base])

    def _names_bound(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]  # "import a.b" binds a
                yield (alias.asname, alias.name) if alias.asname else (first, first)
            return
        for alias, (target, _) in zip(node.names, self._imported(node), strict=True):
            if alias.name != "*":
                yield alias.asname or alias.name, target

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, bool]]:
        """Yield the full name of each import, and whether it is one."""
        if isinstance(node, ast.Import):
            yield from ((alias.name, True) for alias in node.names)
            return
        base, known = _absolute(node.module or "", node.level, self._package)
        for alias in node.names:
            yield (base if alias.name == "*" else _joined(base, alias.name)), known


def imports_of_lines(lines: Sequence[str], module: str, *, package: bool) -> list[tuple[int, str]]:
    """List the imports of a file that does not parse, by the form of its lines."""
    parts = module.split(".") if package else module.split(".")[:-1]
    found: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        match = _IMPORT_LINE.match(line)
        if match is None:
            continue
        names = [
            name.split()[0] for name in (match["names"] or match["plain"]).strip(" \t()\\").split(",") if name.split()
        ]
        if match["plain"] is not None:
            found += [(number, name) for name in names if re.fullmatch(r"[\w.]+", name)]
            continue
        dots = len(match["base"]) - len(match["base"].lstrip("."))
        base, _ = _absolute(match["base"].lstrip("."), dots, parts)
        named = [name for name in names if re.fullmatch(r"\w+", name)]
        found += [(number, _joined(base, name)) for name in named] or [(number, base)]
    return [(number, target) for number, target in found if target]


def _absolute(name: str, level: int, package: Sequence[str]) -> tuple[str, bool]:
    """Resolve a relative import; above the topmost package it stays as it is written."""
    if level == 0:
        return name, True
    if level - 1 >= len([part for part in package if part]):
        return "." * level + name, False
    base = [*package[: len(package) - (level - 1)], *([name] if name else [])]
    return ".".join(base), True


def _joined(base: str, name: str) -> str:
    return base + name if not base or base.endswith(".") else f"{base}.{name}"


def _outer_expressions(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[Node]:
    """Return the parts of a definition that are evaluated in the scope around it.

    The decorators themselves are edges of their own; only what stands inside their arguments is visited.
    """
    outer: list[Node] = []
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            outer += [*decorator.args, *decorator.keywords]
        elif not isinstance(decorator, (ast.Name, ast.Attribute)):
            outer.append(decorator)
    if isinstance(node, ast.ClassDef):
        return [*outer, *node.bases, *node.keywords]
    return [*outer, *node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]


def _children(node: Node) -> list[Node]:
    """``ast.iter_child_nodes`` without the contexts, which are a third of all nodes and say nothing here."""
    children: list[Node] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            children += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            children.append(value)
    return children


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*named, *(extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None)]


def _lookup(scope: _Scope, name: str) -> _Binding | None:
    binding = scope.names.get(name)
    if binding is not None:
        return binding
    outer = scope.parent
    while outer is not None:
        if not outer.is_class:  # the names of a class are not seen from its methods
            binding = outer.names.get(name)
            if binding is not None:
                return binding
        outer = outer.parent
    return None


def _receiver(scope: _Scope) -> str:
    """Return the name of self here, which a nested function sees too unless it binds it anew."""
    current: _Scope | None = scope
    while current is not None and not current.is_class:
        if current.receiver:
            return current.receiver
        current = current.parent
    return ""


def _by_last_name(attributes: list[str]) -> tuple[str, bool] | None:
    return (attributes[-1], False) if attributes else None


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
