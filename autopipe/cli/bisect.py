"""Command `autopipe bisect`: the first kernel of a build that is wrong, or slow for its work."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autopipe.cli.options import BuildName, File, Json, Set, StoreRoot
from autopipe.cli.terminal import complain_of_load, print_lines, show_json
from autopipe.errors import ConfigError, GateError

if TYPE_CHECKING:
    from autopipe.api.bisect import BisectTarget

Case = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Inputs, as *verify* names them  [the first it finds wrong]"),
]
To = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write the kernel's inputs, and a script that repeats it"),
]
Slow = Annotated[
    bool, typer.Option("--slow", help="Find the kernel that loses most time against its bound")
]
Against = Annotated[
    Literal["onnxruntime"] | None,
    typer.Option(metavar="RUNTIME", help="With --slow, against `onnxruntime` and not the bound"),
]


def bisect(  # noqa: PLR0913 -- one for each option
    file: File,
    *,
    case: Case = None,
    to: To = None,
    slow: Slow = False,
    against: Against = None,
    build: BuildName = None,
    overrides: Set = None,
    store: StoreRoot = None,
    as_json: Json = False,
) -> None:
    """Find the first kernel of the last build with an output that differs from the reference's.

    Each kernel call is compared with its unscheduled loops on the same inputs, and with the value
    of the ONNX model that it computes. The build need not have passed *verify*. Exit code 1 where
    one differs.
    """
    from autopipe.api.bisect import find_bisect_target

    if against and not slow:
        raise ConfigError("--against needs --slow")
    target = find_bisect_target(file, store=store, overrides=overrides or (), build=build)
    if slow:
        _find_slow(target, case, to, against, as_json=as_json)
    else:
        _find_wrong(target, case, to, as_json=as_json)


def _find_wrong(
    target: "BisectTarget", case: str | None, to: Path | None, *, as_json: bool
) -> None:
    from autopipe.api.bisect import bisect_build
    from autopipe.bisection.table import format_verdict, list_bisection_lines

    bisection = bisect_build(target, case=case, to=to)
    if as_json:
        show_json(bisection.document())
    else:
        print_lines(list_bisection_lines(bisection))
        print_lines(["", *_list_written_lines(to if bisection.first is not None else None)])
    if not bisection.agrees:
        raise GateError(format_verdict(bisection))
    if not as_json:
        print_lines([format_verdict(bisection)])


def _find_slow(
    target: "BisectTarget", case: str | None, to: Path | None, against: str | None, *, as_json: bool
) -> None:
    from autopipe.api.bisect import find_slow_kernel
    from autopipe.bisection.slow_kernels import list_slow_lines

    slow_kernels = find_slow_kernel(target, case=case, to=to, against=against)
    complain_of_load(slow_kernels.disturbed)
    if as_json:
        show_json(slow_kernels.document())
    else:
        print_lines(list_slow_lines(slow_kernels))
        print_lines(_list_written_lines(to if slow_kernels.worst is not None else None))


def _list_written_lines(to: Path | None) -> list[str]:
    return [] if to is None else [f"wrote {to}: python {to}/reproduce.py repeats the kernel"]
