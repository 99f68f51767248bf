"""The hand-written types of TVM name what TVM has: its wheel has no types to compare them with."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

TYPINGS = Path(__file__).parents[1] / "typings"
STUBS = sorted(TYPINGS.rglob("*.pyi"))


def module_of(stub):
    parts = stub.relative_to(TYPINGS).with_suffix("").parts
    return import_module(".".join(part for part in parts if part != "__init__"))


def parameters(node):
    named = [*node.args.args, *node.args.kwonlyargs]
    return {argument.arg for argument in named} - {"self", "cls"}


def unknown(node, there):
    """Yield parameters of a stub that the function does not have; one in C++ tells none."""
    try:
        real = inspect.signature(there).parameters
    except (TypeError, ValueError):
        return
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in real.values()):
        yield from parameters(node) - real.keys()


def sets(kind, attribute):
    """Whether a class of Python gives its objects an attribute."""
    return inspect.isclass(kind) and f"self.{attribute}" in inspect.getsource(kind)


def wrong_in(node, there, place):
    """Yield what a stub says of a module or a class that is not so."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            if not hasattr(there, item.target.id) and not sets(there, item.target.id):
                yield f"{place}.{item.target.id}"
        elif isinstance(item, ast.ClassDef | ast.FunctionDef):
            yield from wrong_of(item, there, place)


def wrong_of(item, there, place):
    """Yield what is not so of one class or function; those with an underscore are its own."""
    if item.name == "__init__" or not item.name.startswith("_"):
        if not hasattr(there, item.name):
            yield f"{place}.{item.name}"
        elif isinstance(item, ast.ClassDef):
            yield from wrong_in(item, getattr(there, item.name), f"{place}.{item.name}")
        else:
            for parameter in unknown(item, getattr(there, item.name)):
                yield f"{place}.{item.name}({parameter})"


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: str(stub.relative_to(TYPINGS)))
def test_what_a_stub_names_is_there(stub):
    assert list(wrong_in(ast.parse(stub.read_text()), module_of(stub), "")) == []
