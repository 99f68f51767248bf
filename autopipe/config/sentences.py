"""Read the strings below the fields of a section, which are their documentation.

They are parsed from the source on demand. Most commands do not need them, and parsing them at the
definition of each section would take a third of the time of those commands.
"""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise

from autopipe.config.frozen import Frozen


def read_field_docs(section: type[Frozen]) -> dict[str, str]:
    """Read the string below each field of a section and of its base classes, by name."""
    return {
        name: text
        for parent in reversed(section.__mro__)
        if issubclass(parent, Frozen)
        for name, text in _read_own_field_docs(parent).items()
    }


def list_sections() -> dict[str, type[Frozen]]:
    """List all sections that are defined so far, by class name."""
    sections: dict[str, type[Frozen]] = {}
    left = [Frozen]
    while left:
        section = left.pop()
        sections[section.__name__] = section
        left += section.__subclasses__()
    return sections


def _read_own_field_docs(section: type[Frozen]) -> dict[str, str]:
    (body,) = (
        node.body
        for node in _parse_module(section.__module__).body
        if isinstance(node, ast.ClassDef) and node.name == section.__name__
    )
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


@cache
def _parse_module(name: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[name]))
