"""The pages of all passes, from the lists that the compiler runs: `python -m docs.passes_page`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

_HEAD: Final = """\
# Passes

What is done between a model and machine code, in order. `make gen` writes this page from
`autopipe/compiler/pass_lists.py` and `cleanup.py` of `autopipe/compiler/frontends/onnx/rewriting/`.
Passes of TVM have TVM's names, such as `FoldConstant`; ours are functions in
`autopipe/compiler/passes/` and `autopipe/compiler/codegen/`, most in a file of their name.

`autopipe run FILE --dump-ir DIR` writes the module after each pass that changes it, numbered and
named, in a folder for each stage; in that of *build*, modules at likely sizes and what packs
weights have folders of their own. `--print-pass-times` shows how long each pass took. Both run the
stages *import*, *optimize*, *lower* and *build* again, and change no result. The times are those of
passes alone: LLVM's are not in them.
"""

_IMPORTED: Final = """
Then TVM's importer makes a Relax module of the graph, with converters of ours beside its own.
"""

_DEFAULT: Final = """
For static shapes the virtual machine takes TVM's list `default`. `StaticPlanBlockMemory` is where
memory is planned.
"""

_TVM: Final = """
Then TVM's own list `s_tir` follows, from `CanonicalizeLoop` to `BF16StorageLegalize`, without
`RemoveNoOp`: LLVM does its work in less time. Where a size is dynamic, `CommonSubexprElim` is left
out, too, as it takes longest there.
"""

_LLVM: Final = """
At last TVM's `LowerTVMBuiltin` and `LowerIntrin` follow, and LLVM makes machine code.
"""


PAGE: Final = Path("docs/reference/passes.md")
OVERVIEW: Final = Path("docs/architecture.md")
_BEGIN, _END = "<!-- passes: written by `make gen` -->\n", "<!-- end of passes -->\n"


def main() -> None:
    """Bring the pages in the current folder up to date."""
    PAGE.write_text(describe_passes(), "utf-8")
    OVERVIEW.write_text(fill_overview(OVERVIEW.read_text("utf-8")), "utf-8")


def fill_overview(text: str) -> str:
    """Return the page on the architecture with the lists as they are now. Imports TVM."""
    from autopipe.compiler import pass_lists as lists
    from autopipe.compiler.frontends.onnx.rewriting import cleanup
    from autopipe.compiler.frontends.onnx.rewriting.simplify import simplify

    rows = [
        ("import", "CLEANUP", [one.name for one in cleanup.CLEANUP]),
        ("import", "REWRITES", [one.__name__ for one in simplify.REWRITES]),
        ("optimize", "OPTIMIZE", _names(lists.OPTIMIZE)),
        ("lower", "LOWER", _names(lists.LOWER)),
        ("build", "LINK", _names(lists.LINK)),
        ("build", "MACHINE_DYNAMIC", _names(lists.MACHINE_DYNAMIC)),
        ("build", "KERNELS_DYNAMIC", [one.name for one in lists.KERNELS_DYNAMIC]),
        ("build", "KERNELS", [one.name for one in lists.KERNELS]),
        ("build", "HOST_KERNELS", [one.name for one in lists.HOST_KERNELS]),
        ("build", "HOST_KERNELS_DYNAMIC", [one.name for one in lists.HOST_KERNELS_DYNAMIC]),
    ]
    table = "".join(
        f"| `{stage}` | `{name}` | {', '.join(f'`{one}`' for one in passes)} |\n"
        for stage, name, passes in rows
    )
    before, rest = text.split(_BEGIN)
    head = "| stage | list | passes, in order |\n|---|---|---|\n"
    return f"{before}{_BEGIN}{head}{table}{_END}{rest.split(_END)[1]}"


def _names(phases: Sequence[Any]) -> list[str]:
    return [one.name for phase in phases for one in phase.passes]


def describe_passes() -> str:
    """Return the text of the page. Imports TVM."""
    from autopipe.compiler import pass_lists as lists
    from autopipe.compiler.frontends.onnx.rewriting import cleanup

    parts = [
        _HEAD,
        "\n## Stage *import*: the ONNX graph\n",
        _HEADER,
        *_rows((one.name, one.reason, one.describe_condition()) for one in cleanup.CLEANUP),
        _IMPORTED,
        *_phases("Stage *optimize*: ops in their final layouts", lists.OPTIMIZE),
        *_phases("Stage *lower*: ops to kernels", lists.LOWER),
        *_phases("Stage *build*: kernels and their schedules to a model", lists.LINK),
        *_phases("Stage *build*: code for the virtual machine", lists.MACHINE_DYNAMIC),
        _DEFAULT,
        "\n## Stage *build*: kernels as they are scheduled\n",
        *_kernels(lists.KERNELS_DYNAMIC, "a size is dynamic"),
        *_rows((one.name, one.reason, "") for one in lists.KERNELS),
        _TVM,
        "\n## Stage *build*: kernels as LLVM gets them\n",
        *_kernels(lists.HOST_KERNELS_DYNAMIC, "a size is dynamic"),
        *_rows((one.name, one.reason, "") for one in lists.HOST_KERNELS),
        _LLVM,
    ]
    return "".join(parts)


def _phases(title: str, phases: Sequence[Any]) -> Iterator[str]:
    yield f"\n## {title}\n"
    for phase in phases:
        yield f"\n### {phase.name.capitalize()}\n"
        yield _HEADER
        yield from _rows((one.name, one.reason, one.describe_condition()) for one in phase.passes)


_HEADER: Final = "\n| pass | reason | only if |\n|---|---|---|\n"


def _kernels(passes: Sequence[Any], condition: str = "") -> Iterator[str]:
    yield _HEADER
    yield from _rows((one.name, one.reason, condition) for one in passes)


def _rows(rows: Any) -> Iterator[str]:  # noqa: ANN401 - tuples of three texts
    for name, reason, condition in rows:
        yield f"| `{name}` | {reason} | {condition} |\n"


if __name__ == "__main__":
    main()
