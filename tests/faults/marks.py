"""Which tests prove which cases: `@pytest.mark.fault("C3")`, read from the source of the tests."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The checkout."""

Proofs = dict[str, list[str]]
"""Tests by the case they prove, such as `tests/cli/test_app.py::test_exit_codes`."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def proofs(root: Path = ROOT) -> Proofs:
    """Return all tests that are marked. Raises ValueError for a mark that belongs to no test."""
    found: Proofs = {}
    for file in sorted((root / "tests").rglob("*.py")):
        text = file.read_text("utf-8")
        if "mark.fault(" not in text:
            continue
        where = file.relative_to(root).as_posix()
        for case, test in _marked(ast.parse(text), where):
            if test not in found.setdefault(case, []):
                found[case].append(test)
    return found


def _marked(
    node: ast.Module | ast.ClassDef, where: str, inherited: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Yield each case with a test; marks of a class, and `pytestmark`, hold for all tests in it."""
    own: list[ast.AST] = [each for each in node.body if _is_pytestmark(each)]
    own += node.decorator_list if isinstance(node, ast.ClassDef) else []
    marked = [case for each in own for case in _cases(each, where)]
    held = (*inherited, *marked)
    tests = 0
    for each in node.body:
        if isinstance(each, ast.ClassDef):
            yield from _marked(each, f"{where}::{each.name}", held)
            tests += 1
        elif isinstance(each, _Function) and each.name.startswith("test_"):
            slow = " (slow)" if {"slow", "gpu"} & _names(each) else ""
            for case in (*held, *_cases(each, where)):
                yield case, f"{where}::{each.name}{slow}"
            tests += 1
        elif not _is_pytestmark(each) and list(_cases(each, where)):
            raise ValueError(f"{where}:{each.lineno}: a fault is marked where there is no test")
    if marked and not tests:
        raise ValueError(f"{where}: a fault is marked where there is no test")


def _is_pytestmark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"


def _cases(node: ast.AST, where: str) -> Iterator[str]:
    for each in ast.walk(node):
        if not isinstance(each, ast.Call) or not isinstance(each.func, ast.Attribute):
            continue
        if ast.unparse(each.func) != "pytest.mark.fault":
            continue
        for argument in each.args:
            if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                raise ValueError(f"{where}:{each.lineno}: write the case as text")  # noqa: TRY004
            yield argument.value


def _names(test: _Function) -> set[str]:
    """Return what stands behind `pytest.mark.` in the decorators of a test."""
    return {each.attr for each in test.decorator_list if isinstance(each, ast.Attribute)}
