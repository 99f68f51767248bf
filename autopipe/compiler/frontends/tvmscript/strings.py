"""Restrict the strings of a source by their place and content.

In some places TVM's parser evaluates strings as Python, such as quoted sizes in annotations. So a
string may only be the name of an element type, a size, the name of a block or a word of an
operator, each in the places where that is expected. All other strings are rejected.
"""

import ast
import builtins
import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from autopipe.compiler.frontends.tvmscript import attributes, vocabulary

_DTYPE: Final = re.compile(r"bool|bfloat16|(float|int|uint)(8|16|32|64)(x(2|4|8|16|32|64))?")
_SIZE: Final = re.compile(r"\w{1,40}( ?(\+|-|\*|//) ?\w{1,40}){0,3}", re.ASCII)
_BLOCK: Final = re.compile(r"[A-Za-z][\w.]{0,99}|", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z0-9_,> -]{0,60}")
_KINDS: Final = re.compile(r"[SR]{1,40}")
_NUMBER: Final = re.compile(r"-?(inf|nan)")
_SCOPES: Final = frozenset({"global", "local", "shared"})


def is_dtype(text: str) -> bool:
    """Whether a string names an element type."""
    return bool(_DTYPE.fullmatch(text))


def is_size(text: str) -> bool:
    """Whether a string is a size: a sum or product of names and numbers.

    TVM evaluates it as Python, so names of Python's built-in functions and keywords are rejected.
    """
    words = re.findall(r"\w+", text)
    has_reserved = any(
        keyword.iskeyword(w) or hasattr(builtins, w) or w.startswith("_") for w in words
    )
    has_only_words = all(w.isidentifier() or w.isdecimal() for w in words)
    return bool(_SIZE.fullmatch(text)) and has_only_words and not has_reserved


def _make_matcher(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: bool(pattern.fullmatch(text))


Says = Callable[[str], bool]
"""A predicate of strings that are allowed in a place."""

_FIRST: Final[Mapping[str, Says]] = {
    "T.sblock": _make_matcher(_BLOCK), "T.axis.remap": _make_matcher(_KINDS), "R.dtype": is_dtype,
    "R.Tensor": is_dtype,
}  # fmt: skip
"""Allowed strings in the first argument of a call."""

_SECOND: Final[Mapping[str, Says]] = {
    "T.Buffer": is_dtype, "T.sblock_alloc_buffer": is_dtype, "R.Tensor": is_dtype,
    "R.const": is_dtype,
}  # fmt: skip

_NAMED: Final[Mapping[str, Says]] = {
    "dtype": is_dtype, "out_dtype": is_dtype, "scope": _SCOPES.__contains__,
}  # fmt: skip
"""Allowed strings in keyword arguments of all words of T and R."""


def list_allowed_strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield every string of a source that is allowed in its place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            yield from _filter_string(
                node.value, lambda _: True
            )  # a docstring, which is not evaluated
        elif isinstance(node, ast.Call):
            yield from _list_call_strings(node)


def _list_call_strings(node: ast.Call) -> Iterator[ast.Constant]:
    callee = ast.unparse(node.func)
    root, _, word = callee.partition(".")
    if isinstance(node.func, ast.Attribute) and node.func.attr == "astype":
        yield from _filter_strings(
            [*node.args, *(named.value for named in node.keywords)], is_dtype
        )
    elif callee in attributes.OF:  # the gate has checked their content
        for mapping in (arg for arg in node.args if isinstance(arg, ast.Dict)):
            yield from _filter_strings(
                [*filter(None, mapping.keys), *mapping.values], lambda _: True
            )
    elif callee == "float" or (root == "T" and vocabulary.is_number(word)):
        yield from _filter_strings(node.args, _make_matcher(_NUMBER))
    elif root == "T" and vocabulary.is_scalar(word):
        yield from _filter_strings(node.args, is_dtype)
    elif root == "R" and vocabulary.is_operator(word):
        yield from _filter_strings(
            [*node.args, *(named.value for named in node.keywords)], _make_matcher(_WORD)
        )
    yield from _list_argument_strings(callee, root, node)


def _list_argument_strings(callee: str, root: str, node: ast.Call) -> Iterator[ast.Constant]:
    for place, argument in zip((_FIRST, _SECOND), node.args, strict=False):
        if callee in place:
            yield from _filter_string(argument, place[callee])
    for keyword_argument in node.keywords:
        if root in {"T", "R"} and (keyword_argument.arg or "") in _NAMED:
            yield from _filter_string(keyword_argument.value, _NAMED[keyword_argument.arg or ""])
        elif callee == "T.sblock" and keyword_argument.arg == "name":
            yield from _filter_string(keyword_argument.value, _FIRST[callee])
    if callee == "R.Tensor":
        shapes = [
            *node.args[:1],
            *(named.value for named in node.keywords if named.arg == "shape"),
        ]
        for shape in shapes:
            if isinstance(shape, ast.Tuple | ast.List):
                yield from _filter_strings(shape.elts, is_size)


def _filter_strings(nodes: Iterable[ast.expr], says: Says) -> Iterator[ast.Constant]:
    for node in nodes:
        yield from _filter_string(node, says)


def _filter_string(node: ast.expr, says: Says) -> Iterator[ast.Constant]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and says(node.value):
        yield node
