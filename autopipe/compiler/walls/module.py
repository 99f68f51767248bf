"""Check a module before code generation for nodes that no pass of ours or TVM's generates.

TIR can carry code: LLVM IR and C in pragmas, calls of any loaded function by its name, LLVM
intrinsics by number, and text that is written into a GPU kernel. What is on the lists of known,
harmless parts passes. Everything else is refused, and the message names it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir import Op, StringImm

from autopipe.compiler.library.linking import ATTRIBUTE
from autopipe.compiler.walls import callees, names
from autopipe.compiler.walls.foreign_code import ForeignCode
from autopipe.libraries.library import Library

_SYMBOL: Final = re.compile(r"(?!__|_library|_metadata)[A-Za-z_][A-Za-z0-9_]{0,4095}")
"""A name of a function, other than TVM's own names."""

_TYPE: Final = re.compile(r"(|bool|void|handle|u?int\d+|b?float\d+(_\w+)?)(x\d+|xvscalex\d+)?")
_WORD: Final = re.compile(r"[\w.]{0,100}", re.ASCII)
_NUMBERS: Final = (int, float, tvm.tirx.IntImm, tvm.tirx.FloatImm)
_BROKEN: Final = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of malformed nodes."""
_SHARED: Final = frozenset({"TupleType", "TensorType", "ShapeType", "Var", "DataflowVar"})
"""Kinds of nodes that many others refer to; each is visited once."""
_TEXT: Final = 80
"""Characters of an offending value that are shown."""


class _Found(Exception):  # noqa: N818 - the name states the event
    """Ends a walk; its message is the fault."""


def look_through(module: tvm.IRModule | tvm.tirx.PrimFunc) -> None:
    """Raise ForeignCode, naming function and fault, for a node that is not on the allow lists."""
    if isinstance(module, tvm.tirx.PrimFunc):
        module = tvm.IRModule({"main": module})
    for key in (module.attrs or {}).keys():  # noqa: SIM118 - it is no dict
        raise ForeignCode(f"the module has the attribute {_shorten_text(key)}")
    for variable, function in module.functions_items():
        name = str(variable.name_hint)
        try:
            _check_name(name)
            _Walk(function).look()
        except _Found as found:
            raise ForeignCode(f"function {_shorten_text(name)[1:-1]} {found}") from None
        except _BROKEN as error:
            why = ascii(str(error).strip().split("\n")[-1])[1:-1]
            text = f"function {_shorten_text(name)[1:-1]} cannot be looked through: {why[:_TEXT]}"
            raise ForeignCode(text) from None


class _Walk:
    """The check of one function."""

    def __init__(self, function: tvm.ir.BaseFunc) -> None:
        self._function = function
        self._library: Library | None = None
        self._seen: set[tuple[str, str]] = set()
        self._shared: set[int] = set()
        """Addresses of variables and types that were visited."""
        self._strings = 0
        """The number of strings in allowed places."""
        self._met = 0
        """The number of all strings."""
        self._checks: Mapping[str, Callable[[Any], None]] = {
            "Call": self._check_call,
            "AttrStmt": self._check_attribute,
            "For": self._check_loop,
            "SBlock": lambda block: _check_annotations(block.annotations),
            "AllocBuffer": lambda alloc: _check_annotations(alloc.annotations),
            "IterVar": lambda axis: _check_known(names.THREADS, axis.thread_tag, "thread tag"),
            "PointerType": lambda kind: _check_known(
                names.SCOPES, kind.storage_scope, "memory scope"
            ),
            "BufferType": lambda kind: _check_known(
                names.SCOPES, kind.storage_scope, "memory scope"
            ),
            "PrimType": self._type,
            "StringImm": self._count_string,
            "ExternFunc": lambda f: _check_known(names.RELAX_EXTERNS, f.global_symbol, "function"),
            "GlobalVar": lambda variable: _check_name(str(variable.name_hint)),
            "Op": lambda op: self._check_op(str(op.name)),
        }

    def look(self) -> None:
        """Raise _Found for the first node that is not on the lists."""
        kind = type(self._function).__name__
        if kind not in {"PrimFunc", "Function"}:
            raise _Found(f"is a {kind}")
        self._check_attributes(self._function.attrs or {})
        interrupt = tvm_ffi.structural_walk(self._function, (object, self._visit_node), order="pre")
        if interrupt is not None:
            raise _Found(str(interrupt.value))
        if self._met > self._strings and kind == "PrimFunc":
            raise _Found("has a string where none belongs")

    def _visit_node(self, node: object) -> tvm_ffi.VisitInterrupt | tvm_ffi.WalkResult | None:
        kind = type(node).__name__
        if kind in _SHARED and self._is_repeated(node):
            return tvm_ffi.WalkResult.SKIP
        check = self._checks.get(kind)
        try:
            if check is not None:
                check(node)
            elif kind not in names.NODES:
                raise _Found(f"has a node of kind {kind}")  # noqa: TRY301 - as the checks do
        except _Found as found:
            return tvm_ffi.VisitInterrupt(str(found))
        return None

    def _is_repeated(self, node: Any) -> bool:  # noqa: ANN401 - one of several kinds
        """Tell whether a variable or type was visited before: uses of a value repeat its type."""
        address = node.__chandle__()
        is_repeated = address in self._shared
        self._shared.add(address)
        return is_repeated

    def _check_attributes(self, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            _check_known(names.FUNCTION_ATTRIBUTES, key, "attribute")
            if key == "global_symbol":
                _check_name(str(value))
            elif key == ATTRIBUTE:
                self._library = callees.find_labelled_library(str(value))
                if self._library is None:
                    raise _Found(f"calls the library {_shorten_text(value)}")

    def _check_call(self, call: tvm.ir.Call) -> None:
        op, arguments = call.op, call.args
        if isinstance(op, tvm.ir.GlobalVar):
            return
        if not isinstance(op, Op):
            if type(op).__name__ not in {"ExternFunc", "Var"} or isinstance(
                self._function, tvm.tirx.PrimFunc
            ):
                raise _Found(f"calls a {type(op).__name__}")
            return
        name = str(op.name)
        if name in {"tirx.call_extern", "tirx.call_pure_extern"}:
            self._check_callee_name(callees.list_externs(self._library), arguments, name)
        elif name in {"tirx.tvm_call_packed", "tirx.call_packed"}:
            self._check_callee_name(callees.list_packed(self._library), arguments, name)
            self._check_strings(arguments[1:], _WORD)
        elif name in {"tirx.call_llvm_intrin", "tirx.call_llvm_pure_intrin"}:
            _check_intrinsic(arguments[0] if arguments else None)
        elif name == "tirx.tvm_storage_sync":
            self._strings += 1
            _check_known(names.WORDS, getattr(arguments[0], "value", None), "kind of barrier")
        else:
            self._check_op(name)
            if name.startswith("tirx.tvm_"):
                self._check_strings(arguments, re.compile("|".join(names.WORDS)))

    def _check_op(self, name: str) -> None:
        if ("op", name) not in self._seen:
            if name not in names.OPS and not callees.is_graph_op(name):
                raise _Found(f"calls {_shorten_text(name)}")
            self._seen.add(("op", name))

    def _check_callee_name(
        self, allowed_names: Iterable[str], arguments: Sequence[tvm.ir.Expr], op: str
    ) -> None:
        first = arguments[0] if len(arguments) else None
        if not isinstance(first, StringImm):
            raise _Found(f"calls {op} without a name")
        self._strings += 1
        _check_known(allowed_names, str(first.value), op.removeprefix("tirx."))

    def _check_strings(self, arguments: Sequence[tvm.ir.Expr], pattern: re.Pattern[str]) -> None:
        for argument in arguments:
            if isinstance(argument, StringImm):
                self._strings += 1
                if pattern.fullmatch(str(argument.value)) is None:
                    raise _Found(f"passes the string {_shorten_text(argument.value)}")

    def _count_string(self, _: object) -> None:
        self._met += 1

    def _check_attribute(self, statement: tvm.tirx.AttrStmt) -> None:
        key = str(statement.attr_key)
        _check_known(names.ATTRIBUTES, key, "attribute statement")
        if isinstance(statement.value, StringImm):
            self._strings += 1
            if str(statement.value.value) not in names.ATTRIBUTE_WORDS.get(key, ()):
                raise _Found(f"has the string {_shorten_text(statement.value)} at {key}")
        _check_known(names.THREADS, getattr(statement.node, "thread_tag", ""), "thread tag")

    def _check_loop(self, loop: tvm.tirx.For) -> None:
        _check_annotations(loop.annotations)
        if loop.thread_binding is not None:
            _check_known(names.THREADS, loop.thread_binding.thread_tag, "thread tag")

    def _type(self, kind: tvm.ir.PrimType) -> None:
        self._check_once("type", str(kind.dtype), _TYPE)

    def _check_once(self, kind: str, text: str, pattern: re.Pattern[str]) -> None:
        if (kind, text) not in self._seen:
            if pattern.fullmatch(text) is None:
                raise _Found(f"has the {kind} {_shorten_text(text)}")
            self._seen.add((kind, text))


def _check_annotations(annotations: Mapping[str, Any] | None) -> None:
    for key, value in (annotations or {}).items():
        _check_known(names.ANNOTATIONS, key, "annotation")
        if not _is_plain_value(value):
            raise _Found(f"has the annotation {key} with {_shorten_text(value)}")


def _is_plain_value(value: object) -> bool:
    if value is None or isinstance(value, _NUMBERS):
        return True
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    if type(value).__name__ in {"Array", "List", "list", "tuple"} and isinstance(value, Iterable):
        return all(map(_is_plain_value, value))
    return isinstance(value, tvm.ir.Var)


def _check_name(name: str) -> None:
    if _SYMBOL.fullmatch(name) is None:
        raise _Found(f"has the name {_shorten_text(name)}")


def _check_intrinsic(number: tvm.ir.Expr | None) -> None:
    is_allowed = isinstance(number, tvm.tirx.IntImm) and int(number) in callees.list_intrinsics()
    if not is_allowed:
        raise _Found(
            f"has the instruction {_shorten_text(getattr(number, 'value', number))} of LLVM"
        )


def _check_known(allow_list: Iterable[str], value: object, kind: str) -> None:
    if not isinstance(value, str) or value not in allow_list:
        raise _Found(f"has the {kind} {_shorten_text(value)}")


def _shorten_text(value: object) -> str:
    text = ascii(str(value))
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}...'"
