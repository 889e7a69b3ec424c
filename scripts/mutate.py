"""Small faults put into source code, one at a time: what `scripts/mutants.py` asks the tests to find.

A mutant changes one node of the syntax tree: an operator, a comparison, a condition, a number, a function for its
opposite, a keyword argument, a statement that is left out. Nothing is changed in docstrings, annotations, the text of
errors, imports and `__repr__`-like wording: no test should have to hold those fixed letter by letter.
"""

import ast
import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPPOSITES = {
    **{"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"},
    **{"argmin": "argmax", "argmax": "argmin", "floor": "ceil", "ceil": "floor", "sum": "max", "mean": "sum"},
    **{"log": "exp", "exp": "log", "sqrt": "square", "cos": "sin", "logaddexp": "maximum", "logsumexp": "max"},
    **{"concatenate": "stack", "zeros": "ones", "ones": "zeros", "expm1": "exp", "log1p": "log", "cumsum": "sort"},
    **{"std": "var", "var": "std", "isfinite": "isnan", "isnan": "isfinite", "median": "mean", "unique": "sort"},
}
Replacement = Callable[[ast.AST], ast.AST | None]


@dataclass(frozen=True)
class Mutant:
    """One change in one file: `before` becomes `after` at that line."""

    file: str
    line: int
    column: int
    operator: str
    before: str
    after: str
    number: int  # of the change among all of its file, to find it again

    @property
    def name(self) -> str:
        """The same for the same change in the same file, whatever else is drawn."""
        text = f"{self.file}:{self.number}:{self.line}:{self.column}:{self.operator}:{self.before}:{self.after}"
        return hashlib.sha256(text.encode()).hexdigest()[:10]


def mutants(path: Path, root: Path) -> list[Mutant]:
    """All mutants of a file."""
    tree, name = ast.parse(path.read_text()), str(path.relative_to(root))
    found = enumerate(_changes(tree))
    return [
        Mutant(name, old.lineno, old.col_offset, operator, _line(old), "(left out)" if new is None else _line(new), i)
        for i, (operator, old, new, _) in found
    ]


def mutants_since(path: Path, root: Path, before: str) -> list[Mutant]:
    """Those in functions that were not so in an earlier source of the file; outside of functions, in such lines."""
    text = path.read_text()
    lines, lines_before = text.splitlines(), set(before.splitlines())
    functions_before = {ast.dump(node) for node in _functions(before)}
    new = {number for number, line in enumerate(lines, start=1) if line not in lines_before}
    for node in _functions(text):  # outer ones first
        of_function = range(_first_line(node), (node.end_lineno or node.lineno) + 1)
        new = new.difference(of_function) if ast.dump(node) in functions_before else new.union(of_function)
    return [one for one in mutants(path, root) if one.line in new]


def mutated(path: Path, number: int) -> tuple[str, int]:
    """The file's source with change `number`, and the first line of the function that it is in (0: none)."""
    tree = ast.parse(path.read_text())
    for i, (_, old, new, scope) in enumerate(_changes(tree)):
        if i == number:
            return ast.unparse(ast.fix_missing_locations(_Put(old, new).visit(tree))), scope
    raise SystemExit(f"{path} has no change {number}")


class _Put(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST | None) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.old:
            return ast.copy_location(ast.Pass() if self.new is None else self.new, node)
        return self.generic_visit(node)


Change = tuple[str, ast.AST, ast.AST | None, int]


def _changes(tree: ast.AST) -> Iterator[Change]:
    yield from _walk(tree, 0)


def _walk(node: ast.AST, scope: int) -> Iterator[Change]:
    """Every change under a node, in the order of the source."""
    if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.FunctionDef):
        scope = scope or _first_line(node)
        for child in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None), *node.body):
            yield from _walk(child, scope)
        return
    if isinstance(node, ast.Lambda):
        scope = scope or node.lineno
    if isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield from _walk(node.value, scope)
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Error", "Problem", "warn", "partial", "field")):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield from ((name, node, new, scope) for name, new in _of(node))
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, scope)


def _functions(text: str) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]


def _first_line(node: ast.FunctionDef) -> int:
    """That of its decorators, if it has any."""
    return min([node.lineno, *(item.lineno for item in node.decorator_list)])


def _of(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """The changes of one node."""
    match node:
        case ast.BinOp(op=op) if type(op) in ARITHMETIC and not _is_text(node):
            yield "arithmetic", _with(node, op=ARITHMETIC[type(op)]())
        case ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            yield "arithmetic", _with(node, op=ARITHMETIC[type(op)]())
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            for other in COMPARISONS[type(op)]:
                yield "comparison", _with(node, ops=[other()])
        case ast.BoolOp(op=op):
            yield "logic", _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()) if not isinstance(node.operand, ast.Constant):
            yield "sign", node.operand
        case ast.If() | ast.IfExp() | ast.While():
            yield "condition", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float() as value):
            yield "constant", ast.Constant(2 * value if value else 1.0)
        case ast.Call(func=ast.Attribute(attr=name)) if name in OPPOSITES:
            yield "function", _with(node, func=_with(node.func, attr=OPPOSITES[name]))
        case ast.Call(func=ast.Name(id=name)) if name in OPPOSITES:
            yield "function", _with(node, func=_with(node.func, id=OPPOSITES[name]))
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "statement", None
    if isinstance(node, ast.Call):
        for i, word in enumerate(node.keywords):
            if word.arg is not None:
                yield "argument", _with(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])


def _with(node: ast.AST, **changed: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in changed.items():
        setattr(new, name, value)
    return new


def _is_text(node: ast.BinOp) -> bool:
    """Text or types joined together: `"a" + b`, `int | None`."""
    words = ast.unparse(node)
    return '"' in words or "'" in words or (isinstance(node.op, ast.BitOr) and words.replace(" | ", "").isalnum())


def _line(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()[0]
    return text if len(text) <= 110 else f"{text[:107]}..."
