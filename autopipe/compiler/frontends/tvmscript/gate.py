"""The gate: restrict the Python syntax that reaches TVM's parser.

TVM's parser evaluates expressions of a source, and they can use Python's built-in functions. So the
source is first parsed to a syntax tree, and rejected if it holds anything that no model needs.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Final, NoReturn

from autopipe import foreign
from autopipe.compiler.frontends.tvmscript import attributes, strings, vocabulary
from autopipe.config.suggestion import find_closest
from autopipe.errors import ModelError

MAX_BYTES: Final = 2**20
"""Maximum size of a source; weights do not belong in it."""

_MAX_NODES: Final = 200_000
_MAX_DEPTH: Final = 100
_MAX_BITS: Final = 64
_MAX_TEXT: Final = 1000
_ROOTS: Final = frozenset(vocabulary.IMPORTS.values())
_TAKEN: Final = _ROOTS | vocabulary.BUILTINS

_NODES: Final = (
    ast.Module, ast.ImportFrom, ast.alias, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg,
    ast.Return, ast.Assign, ast.AnnAssign, ast.For, ast.If, ast.With, ast.withitem, ast.Expr,
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.keyword, ast.Constant,
    ast.Attribute, ast.Subscript, ast.Slice, ast.Name, ast.List, ast.Tuple, ast.Dict,
    ast.expr_context, ast.boolop, ast.unaryop, ast.cmpop,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.RShift, ast.BitOr, ast.BitAnd,
    ast.BitXor,
)  # fmt: skip
_OPTIONS: Final = frozenset({"private", "pure", "s_tir"})
"""Boolean options of decorators."""
_CONSTANTS: Final = (bool, int, float, str, type(None))


def admit(data: bytes) -> str:
    """Return the checked text for TVM's parser: the class or function only, at its line numbers.

    Raises `ModelError`; its message begins with the line number, if there is one.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(f"1: not text in UTF-8, byte {error.start}: no TVMScript") from None
    if (offset := foreign.find_hidden(text)) is not None:
        line = text.count("\n", 0, offset) + 1
        raise ModelError(f"{line}: U+{ord(text[offset]):04X} is not shown as it is read")
    tree = _parse_python(text)
    lines = list(_walk_nodes(tree, 0, 1))
    nodes = [node for node, _ in lines]
    if len(nodes) > _MAX_NODES:
        raise ModelError(f"1: {len(nodes)} nodes of syntax, more than {_MAX_NODES}")
    bound_names = _collect_bound_names(nodes)
    functions, modules = _find_callees(nodes)
    for node, line in lines:
        if not isinstance(node, _NODES):
            raise ModelError(f"{line}: {type(node).__name__} is no part of TVMScript models")
        _check_node(node, bound_names)
        if isinstance(node, ast.Attribute):
            _check_attribute(node, functions, modules)
    definition = _find_definition(tree)
    for function in definition.body if isinstance(definition, ast.ClassDef) else [definition]:
        _check_function(function)
    _check_strings(tree, nodes)
    start = definition.decorator_list[0].lineno
    every = re.split("\r\n|\n", text)[: definition.end_lineno]
    return "\n".join([*[""] * (start - 1), *every[start - 1 :]]) + "\n"


def _parse_python(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise ModelError(f"{error.lineno or 1}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or "nested too deeply"
        raise ModelError(f"1: Python cannot parse it: {reason}") from None


def _walk_nodes(node: ast.AST, depth: int, line: int) -> Iterator[tuple[ast.AST, int]]:
    """Yield a node and its descendants, each with its line; operators have that of their parent.

    Raises ModelError for a source nested too deeply for TVM's recursive parser.
    """
    line = getattr(node, "lineno", line)
    if depth > _MAX_DEPTH:
        raise ModelError(f"{line}: nested more than {_MAX_DEPTH} deep")
    yield node, line
    for child in ast.iter_child_nodes(node):
        yield from _walk_nodes(child, depth + 1, line)


def _collect_bound_names(nodes: list[ast.AST]) -> frozenset[str]:
    """Return every name that the source assigns or defines."""
    return frozenset(_list_names(node)[0] for node in nodes if _is_binding(node))


def _find_callees(nodes: list[ast.AST]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the functions of a module, and the names bound only to the module."""
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    aliases = {
        id(target): target.id
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name) and node.value.id in classes
    }
    other_names = _collect_bound_names([
        node for node in nodes if id(node) not in aliases and not isinstance(node, ast.ClassDef)
    ])  # fmt: skip
    functions = frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))
    return functions, frozenset({*classes, *aliases.values()} - other_names)


def _check_node(node: ast.AST, names: frozenset[str]) -> None:
    for name in _list_names(node):
        if name.startswith("_") and name != "_":
            _refuse_node(node, f"{name!r}: names of models do not begin with an underscore")
    if isinstance(node, ast.Constant):
        _check_constant(node)
    elif isinstance(node, ast.Name) and node.id not in names | _TAKEN:
        _refuse_node(
            node, f"{node.id!r} is not defined; models know {', '.join(sorted(_ROOTS))} only"
        )
    elif _is_binding(node) and _list_names(node)[0] in _ROOTS:
        _refuse_node(node, f"{_list_names(node)[0]!r} is TVM's, and cannot be another value")
    elif isinstance(node, ast.Call):
        _check_call(node, names)


def _is_binding(node: ast.AST) -> bool:
    stores = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    return stores or isinstance(node, ast.arg | ast.FunctionDef | ast.ClassDef)


def _list_names(node: ast.AST) -> list[str]:
    values = (getattr(node, field, None) for field in ("id", "name", "arg", "attr", "asname"))
    return [name for name in values if isinstance(name, str)]


def _check_constant(node: ast.Constant) -> None:
    value = node.value
    if not isinstance(value, _CONSTANTS):
        _refuse_node(node, f"a constant of type {type(value).__name__}")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        _refuse_node(node, f"an integer of {value.bit_length()} bits, more than {_MAX_BITS}")
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        _refuse_node(node, f"a string of {len(value)} characters, more than {_MAX_TEXT}")


def _check_attribute(
    node: ast.Attribute, functions: frozenset[str], modules: frozenset[str]
) -> None:
    """Reject attributes other than words of T, R and I, module functions and a few of values."""
    if not isinstance(node.ctx, ast.Load):
        _refuse_node(node, "an attribute cannot be assigned to")
    root, word = _split_dotted_name(node)
    if root in _ROOTS:
        if (
            not vocabulary.is_known_word(root, word)
            and word != "axis"
            and word not in {"nn", "image"}
        ):
            suggestion = find_closest(word, vocabulary.T_WORDS) if root == "T" else None
            hint = f"; did you mean T.{suggestion}?" if suggestion else ", or unknown"
            _refuse_node(node, f"{root}.{word} is not allowed in a model{hint}")
        return
    is_function = root in modules and word in functions
    if node.attr not in vocabulary.ON_VALUES and not is_function:
        _refuse_node(node, f".{node.attr} is not allowed in a model")


def _check_call(node: ast.Call, names: frozenset[str]) -> None:
    root, word = _split_dotted_name(node.func)
    is_builtin = isinstance(node.func, ast.Name) and node.func.id in vocabulary.BUILTINS - names
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "astype"
    if not (is_builtin or is_method or (root in _ROOTS and word)):
        _refuse_node(node, f"{ast.unparse(node.func)[:60]} cannot be called in a model")
    for keyword in node.keywords:
        if keyword.arg in {None, "annotations", "check_well_formed", "thread"}:
            _refuse_node(node, f"{keyword.arg or '**'} is not allowed in a model")
    if ast.unparse(node.func) in attributes.OF:
        _check_attributes(node)


def _check_attributes(node: ast.Call) -> None:
    """Check the attributes of a function or a block."""
    kind, rules = attributes.OF[ast.unparse(node.func)]
    mapping = node.args[0] if len(node.args) == 1 and not node.keywords else None
    if not isinstance(mapping, ast.Dict):
        _refuse_node(node, f"{ast.unparse(node.func)} takes one {{key: value}} in a model")
    for key, value in zip(mapping.keys, mapping.values, strict=True):
        try:
            attribute = ast.literal_eval(key or mapping), ast.literal_eval(value)
        except (ValueError, TypeError):
            _refuse_node(value, f"the value of an {kind} is written out in a model")
        if reason := attributes.find_fault(kind, rules, *attribute):
            _refuse_node(value, reason)


def _check_strings(tree: ast.Module, nodes: list[ast.AST]) -> None:
    """Reject every string that is not allowed in its place."""
    allowed_ids = {id(node) for node in strings.list_allowed_strings(tree)}
    for node in nodes:
        value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and id(node) not in allowed_ids:
            _refuse_node(
                node, f"the string {value[:40]!r} is not allowed here: TVM may evaluate it"
            )


def _split_dotted_name(node: ast.AST) -> tuple[str | None, str]:
    """Split `a.b.c` into its first name, if it has one, and the rest."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else None), ".".join(reversed(parts))


def _find_definition(tree: ast.Module) -> ast.ClassDef | ast.FunctionDef:
    """Return the only class or function of a source; raises ModelError for other statements."""
    definitions: list[ast.ClassDef | ast.FunctionDef] = []
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom):
            _check_import(statement)
        elif isinstance(statement, ast.ClassDef | ast.FunctionDef):
            definitions.append(statement)
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            _refuse_node(
                statement, "a model is one class or one PrimFunc, and imports of tvm.script"
            )
    if len(definitions) != 1:
        raise ModelError(
            f"1: no TVMScript: {len(definitions)} classes and functions, where a model is one"
        )
    if isinstance(definitions[0], ast.ClassDef):
        _check_decorators(definitions[0], {"I.ir_module"})
        if definitions[0].bases or definitions[0].keywords:
            _refuse_node(definitions[0], "the class of a model has no bases")
    return definitions[0]


def _check_import(node: ast.ImportFrom) -> None:
    for alias in node.names:
        required_alias = vocabulary.IMPORTS.get(alias.name)
        if node.module != "tvm.script" or node.level or required_alias is None:
            _refuse_node(
                node, f"only {', '.join(vocabulary.IMPORTS)} are imported, from tvm.script"
            )
        if alias.asname != required_alias:
            _refuse_node(node, f"write: from tvm.script import {alias.name} as {required_alias}")


def _check_function(node: ast.stmt) -> None:
    if not isinstance(node, ast.FunctionDef):
        _refuse_node(node, "the class of a model holds functions only")
    _check_decorators(node, {"T.prim_func", "R.function"})
    every = node.args
    if every.vararg or every.kwarg or every.defaults or every.kwonlyargs or every.posonlyargs:
        _refuse_node(node, "a function of a model takes plain parameters, without defaults")
    for inner in ast.walk(node):
        if inner is not node and isinstance(inner, ast.FunctionDef | ast.ClassDef | ast.ImportFrom):
            _refuse_node(inner, "definitions and imports do not stand inside a function")


def _check_decorators(node: ast.ClassDef | ast.FunctionDef, allowed_words: set[str]) -> None:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            _check_options(decorator)
    functions = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    words = [".".join(filter(None, _split_dotted_name(name))) for name in functions]
    if len(words) != 1 or words[0] not in allowed_words:
        _refuse_node(node, f"{node.name} needs one decorator: {' or '.join(sorted(allowed_words))}")


def _check_options(decorator: ast.Call) -> None:
    for keyword in decorator.keywords:
        plain = isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, bool)
        if keyword.arg not in _OPTIONS or not plain:
            _refuse_node(
                decorator, f"{keyword.arg} is not allowed in a model, or not of this value"
            )
    if decorator.args:
        _refuse_node(decorator, "a decorator of a model takes named options only")


def _refuse_node(node: ast.AST, reason: str) -> NoReturn:
    raise ModelError(f"{getattr(node, 'lineno', 1)}: {reason}")
