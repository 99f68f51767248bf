"""Computes as libraries in a folder, each with its versions: built now, timed when all is quiet."""

import json
import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from compute_cases import Case

Row = dict[str, Any]

_SECONDS: Final = 150.0
"""Most that a function takes to be scheduled, checked and compiled, or searched."""

_LONG: Final = 5e-3
"""Seconds of a call from which on it is timed less often."""

_REPEAT: Final = 2e-4
"""Seconds of a repeat, about: so short that some have the machine to themselves."""

_REPEATS: Final = 15
"""Of a turn."""


def stem(row: Mapping[str, Any]) -> str:
    """Return the name of a function's files."""
    return sha256(f"{row['op']} {row['label']}".encode()).hexdigest()[:16]


def rows(file: Path) -> list[Row]:
    """Return the rows of a JSON-lines file; none if it is missing."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def append(file: Path, row: Row) -> None:
    """Append one line, which several processes may do at a time."""
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")


def alone(make: Callable[[], Row]) -> Row:
    """Call a function in a child process; return its row, or how the child was aborted."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_told, args=(make, theirs))
    child.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(_SECONDS) else {"aborted": f"over {_SECONDS:.0f} s"}
    except EOFError:
        child.join()
        found = {"aborted": f"ended with {child.exitcode}"}
    child.kill()
    child.join()
    return dict(found)


def _told(make: Callable[[], Row], pipe: Any) -> None:  # noqa: ANN401
    try:
        pipe.send(make())
    except Exception as error:  # noqa: BLE001 - whatever it is, it counts
        pipe.send({"aborted": f"{type(error).__name__}: {str(error).strip()[-300:]}"})
    sys.stdout.flush()
    os._exit(0)


def library(path: Path, modules: Mapping[str, Any], target: Any) -> None:  # noqa: ANN401
    """Write a library with versions of a function, each by its name."""
    import tvm

    from autopipe.compiler.codegen.compile_kernels import compile_kernel, export_library
    from autopipe.compiler.graph import elementary

    functions = {
        name: elementary.expand_functions(module)["main"].with_attr("global_symbol", name)
        for name, module in modules.items()
    }
    built = compile_kernel(tvm.IRModule(functions), target)
    export_library(tvm.runtime.Executable(built), path)


def in_turn(folder: Path, row: Row, turns: int) -> dict[str, float]:
    """Return the minimum time of each version of a function, in seconds; they are timed in turn.

    What is timed is a repeat: the mean of the calls that fit into it.
    """
    import tvm

    from autopipe.compiler.module_io import load_module
    from autopipe.measure.timing import make_operands

    given = make_operands(load_module(folder / f"{stem(row)}.json"))
    passed = [tvm.runtime.tensor(one) for one in given]
    versions = dict(_versions(folder, stem(row)))
    least = dict.fromkeys(versions, math.inf)
    for turn in range(turns):
        for name, module in versions.items():
            begun = perf_counter()
            module[name](*passed)
            once = perf_counter() - begun
            if once > _LONG and turn > 1:
                continue
            probe = module.time_evaluator(name, tvm.cpu(), 3)(*passed) if once < _LONG else None
            calls = max(1, int(_REPEAT / max(probe.mean, 1e-8))) if probe else 1
            repeats = _REPEATS if probe else 1
            clock = module.time_evaluator(name, tvm.cpu(), calls, repeats)
            least[name] = min(least[name], *map(float, clock(*passed).results))
    return least


def _versions(folder: Path, name: str) -> Iterator[tuple[str, Any]]:
    import tvm

    built = tvm.runtime.load_module(str(folder / f"{name}.so"))
    for version in ("loops", "parallel", "ours"):
        yield version, built
    found = folder / f"{name}-ansor.so"
    if found.exists():
        yield "ansor", tvm.runtime.load_module(str(found))


def save(folder: Path, case: Case) -> None:
    """Write a function as it was declared, which tells how it is called."""
    from autopipe.compiler.module_io import save_module

    save_module(case.module, folder / f"{stem({'op': case.op, 'label': case.label})}.json")
