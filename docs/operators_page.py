"""The page of ONNX operators, from their records: `python -m docs.operators_page`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from autopipe.compiler.frontends.onnx.operator import Operator

_HEAD: Final = """\
# Supported ONNX operators

What can be imported. `make gen` writes this page from the records of
`autopipe/compiler/frontends/onnx/operators/`; [ONNX operators](operators.md) says what becomes of
the tests of the onnx package, and [the guide](../guides/extending.md#an-onnx-operator) how to add
one.

*Opset* is the newest definition that is followed, from opset 7 on. *Imported by* names the rule
that makes Relax of it: a converter of TVM's or ours, its *body* of simpler operators, or a clean-up
[pass](passes.md) that replaces it. *Dynamic shapes* has a rule where the operator needs one of its
own; all others take the sizes as they come.

| operator | opset | imported by | dynamic shapes | file |
|---|---:|---|---|---|
"""

PAGE: Final = Path("docs/reference/operator-support.md")


def main() -> None:
    """Bring the page in the current folder up to date."""
    PAGE.write_text(describe_operators(), "utf-8")


def describe_operators() -> str:
    """Return the text of the page. Imports TVM."""
    return _HEAD + "".join(_rows())


def _rows() -> Iterator[str]:
    from autopipe.compiler.frontends.onnx import operators

    files = {
        (operator.domain, operator.name): name
        for name, module in vars(operators).items()
        for operator in getattr(module, "OPERATORS", ())
        if name != "OPERATORS"
    }
    for (domain, name), operator in sorted(operators.OPERATORS.items()):
        opset = str(operator.since) if not domain and operator.is_importable else ""
        rule = "a rule" if operator.convert_dynamic or operator.dynamic_body else ""
        full = f"{domain}::{name}" if domain else name
        file = f"`{files[domain, name]}.py`"
        yield f"| {full} | {opset} | {_describe_way(operator)} | {rule} | {file} |\n"


def _describe_way(operator: "Operator") -> str:
    if operator.refusal:
        return f"refused: operators {operator.refusal}"
    if operator.replaced_by:
        return f"pass `{operator.replaced_by}`"
    if operator.body is not None:
        return "body"
    module = getattr(operator.converter, "__module__", "")
    return "TVM" if module.startswith("tvm.") else "autopipe"


if __name__ == "__main__":
    main()
