"""Which ONNX operators work: `python benchmarks/operators.py --write docs/reference/operators.md`.

Imports, builds and runs every test that the onnx package has for an operator, each in a process of
its own, and compares the outputs with those that the test expects.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from machine import target
from operator_cases import OperatorCase, cases

from autopipe.errors import AutopipeError, ModelError
from autopipe.processes.contained import Child, Failed

SECONDS: Final = 60.0
"""After which a case counts as hung."""
_UNITS: Final = 4.0
"""Roundings of the largest number that is expected by which another may be off."""
_VERDICTS: Final = ("right", "refused", "wrong", "crashed")
_VERSIONS: Final = ("onnx", "apache-tvm", "numpy")
_DOMAINS: Final = {
    "numbers": "tensors of numbers, of shapes that are known",
    "values": "tensors of numbers, with results of a shape that depends on their values",
    "drawn": "tensors of numbers, with results drawn at random",
    "small": "tensors of bfloat16, or of numbers of eight bits or fewer that numpy lacks",
    "other": "strings, sequences and optional values",
    "foreign": "machine learning and training: `ai.onnx.ml`, `ai.onnx.preview.training`",
}

_PAGE: Final = """\
# ONNX operators

What becomes of the {count} tests that the onnx package has for its operators: each is imported,
built and run, and its outputs compared with those that the test expects. Shapes, axes and counts
are constants, as in real models. *Refused* says so in a line that names the operator, or the type.

`python benchmarks/operators.py --write {path}` writes this page; it was written with {versions}.

| of tests on | {heads} |
|---|{bars}|
{domains}
"""

_TABLE: Final = """
## By operator

Tests on tensors of numbers that numpy has, those first that do not all pass.

| operator | {heads} | refused, for example |
|---|{bars}|---|
"""


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a case."""

    case: OperatorCase
    verdict: str
    reason: str


def main() -> None:
    """Try the cases, print what is not right, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name or operator contains this")
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--results", type=Path, help="keeps verdicts, to go on with later")
    parser.add_argument("--seconds", type=float, help="begin with no case after that")
    options = parser.parse_args()
    chosen = [
        case for case in cases() if options.only in case.name or options.only == case.operator
    ]
    known = _read(options.results, chosen) if options.results else {}
    ends = time.monotonic() + (options.seconds or float("inf"))
    for done in _tried([case for case in chosen if case.name not in known]):
        known[done.case.name] = done
        if options.results:
            _append(done, options.results)
        if done.verdict != "right":
            print(f"{done.verdict:<8} {done.case.operator} {done.case.name}: {done.reason}")
            sys.stdout.flush()
        if time.monotonic() > ends:
            break
    tried = [known[case.name] for case in chosen if case.name in known]
    for domain, meaning in _DOMAINS.items():
        found = Counter(each.verdict for each in tried if each.case.domain == domain)
        counts = ", ".join(f"{found[verdict]} {verdict}" for verdict in _VERDICTS)
        print(f"{meaning}: {counts}, of {found.total()}")
    if options.write and len(tried) < len(chosen):
        sys.exit(f"{len(chosen) - len(tried)} cases are left: run it again")
    if options.write:
        options.write.write_text(_page(tried, options.write), encoding="utf-8")


def _read(path: Path, chosen: Sequence[OperatorCase]) -> dict[str, Tried]:
    """Return the results of an earlier run, by the names of the cases."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
    found = {line["name"]: (line["verdict"], line["reason"]) for line in lines}
    return {case.name: Tried(case, *found[case.name]) for case in chosen if case.name in found}


def _append(done: Tried, path: Path) -> None:
    line = {"name": done.case.name, "verdict": done.verdict, "reason": done.reason}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _tried(chosen: Sequence[OperatorCase]) -> Iterator[Tried]:
    """Yield the cases with their verdicts, two at a time."""
    here = target()
    _warm()
    for at in range(0, len(chosen), 2):
        pair = chosen[at : at + 2]
        children = [Child(partial(_begun, case, here), seconds=SECONDS) for case in pair]
        for child in children:
            child.tell()
        for case, child in zip(pair, children, strict=True):
            with child:
                try:
                    verdict, reason = child.answer()
                except (Failed, AutopipeError) as error:
                    verdict, reason = "crashed", str(error).strip().splitlines()[-1]
            yield Tried(case, verdict, reason)


def _begun(case: OperatorCase, here: Mapping[str, object]) -> Callable[[object], tuple[str, str]]:
    return lambda _: _try(case, here)


def _warm() -> None:
    """Import what every case needs, once."""
    import tvm  # noqa: F401

    from autopipe.compiler import lowering, tasks  # noqa: F401
    from autopipe.compiler.frontends.onnx import load  # noqa: F401
    from autopipe.compiler.library import build  # noqa: F401
    from autopipe.schedules.engines import fallback  # noqa: F401


_CHAINS: Final = (("static", "default", "serial"), ("default", "serial"), ("serial",))
"""Schedules that are tried in turn: a build puts aside what does not compile."""


def _try(case: OperatorCase, here: Mapping[str, object]) -> tuple[str, str]:
    """Return the verdict of a case and its reason; any error beyond a refusal is a crash."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "case.onnx")
        path.write_bytes(case.model.SerializeToString())
        try:
            found = _run(path, case.inputs, here)
        except ModelError as error:
            reason = str(error).removeprefix(f"{path}: ")
            return ("refused" if _says_why(reason, case) else "crashed"), reason
    return _compared(found, case)


def _says_why(reason: str, case: OperatorCase) -> bool:
    """Whether a refusal names an operator of the model, or a type, and is no error by accident."""
    names = {node.op_type for node in case.model.graph.node} | {
        "element type",
        "is empty",
        "not a tensor",
        "opset",
    }
    return any(name in reason for name in names) and "Error: " not in reason


def _run(path: Path, inputs: Mapping[str, np.ndarray], here: Mapping[str, object]) -> list[Any]:
    import tvm
    from tvm import relax

    from autopipe.compiler import lowering, tasks
    from autopipe.compiler.frontends.onnx.load import load_model
    from autopipe.compiler.library.evaluate_weights import evaluate_weights
    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.engines import default

    model = load_model(path, {}, None, None)
    conditions = Conditions.of(here, fast_algorithms=True)
    goal = conditions.target
    optimized = lowering.optimize(model.module, len(model.inputs), {}, goal, lambda _: None)
    lowered = lowering.lower(optimized.module, goal)
    extracted, workloads = tasks.extract_tasks(lowered)
    built = _built(lowered, extracted, workloads, conditions)
    values = list(model.weights.values())
    for work in (optimized.transform, built.packing) if values else ():
        values = evaluate_weights(work, values, goal, lambda module: default.schedule(module, goal))
    arrays = [*(np.asarray(inputs[port.name]) for port in model.inputs), *values]
    machine = relax.VirtualMachine(built.executable, tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(np.array(each, order="C")) for each in arrays))
    return [result] if hasattr(result, "numpy") else list(result)


def _built(lowered: Any, extracted: Any, workloads: Any, conditions: Any) -> Any:  # noqa: ANN401
    """Return the library, by the first of the chains of schedules that compiles."""
    from autopipe.compiler.library import build
    from autopipe.schedules.engines.fallback import choose_fallback

    for chain in _CHAINS:
        scheduled = {}
        for task in extracted:
            workload = workloads[task.workload]
            planned = choose_fallback(chain, workload, conditions).planned
            for name in task.functions:
                scheduled[name] = planned.module if planned else workload
        try:
            return build.build_library(lowered, scheduled, conditions.target)
        except Exception:  # of TVM, which raises what it likes
            if chain == _CHAINS[-1]:
                raise
    return None


def _compared(found: Sequence[Any], case: OperatorCase) -> tuple[str, str]:
    """Compare outputs as the onnx package's own runner of these tests does.

    What it expects is rounded: a float is right where it is off by a few roundings of the largest.
    """
    relative, absolute = case.tolerances
    names = [value.name for value in case.model.graph.output]
    for name, tensor, expected in zip(names, found, case.outputs, strict=True):
        array, wanted = tensor.numpy(), np.asarray(expected)
        if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
            what = f"{array.dtype} {list(array.shape)}, not {wanted.dtype} {list(wanted.shape)}"
            return "wrong", f"output {name} is {what}"
        with np.errstate(all="ignore"):
            least = max(absolute, _rounding(wanted))
            bad = ~np.isclose(array, wanted, rtol=relative, atol=least, equal_nan=True)
        if bad.any():
            first = int(bad.argmax())
            what = f"{array.flat[first]} for {wanted.flat[first]}"
            return "wrong", f"output {name}: {bad.sum()} of {bad.size} differ, the first is {what}"
    return "right", ""


def _rounding(wanted: np.ndarray) -> float:
    values = wanted.reshape(-1)
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values[:0]
    if not finite.size:
        return 0.0
    return _UNITS * float(np.finfo(wanted.dtype).eps) * float(np.abs(finite).max())


def _page(tried: Sequence[Tried], path: Path) -> str:
    rows = [(meaning, [t for t in tried if t.case.domain == d]) for d, meaning in _DOMAINS.items()]
    heads, bars = " | ".join(("tests", *_VERDICTS)), "|".join(["---:"] * (1 + len(_VERDICTS)))
    text = _PAGE.format(
        count=len(tried),
        path=path.as_posix(),
        versions=", ".join(f"{name} {version(name)}" for name in _VERSIONS),
        heads=heads,
        bars=bars,
        domains="".join(f"| {name} | {_counts(found)} |\n" for name, found in rows).rstrip(),
    )
    by_operator: dict[str, list[Tried]] = defaultdict(list)
    for each in tried:
        if each.case.domain == "numbers":
            by_operator[each.case.operator].append(each)
    text += _TABLE.format(heads=heads, bars=bars)
    for name, found in sorted(by_operator.items(), key=lambda row: (_all_right(row[1]), row[0])):
        reason = next((each.reason for each in found if each.verdict == "refused"), "")
        text += f"| {name} | {_counts(found)} | {reason[:120].replace('|', '/')} |\n"
    return text


def _all_right(found: Sequence[Tried]) -> bool:
    return all(each.verdict == "right" for each in found)


def _counts(found: Sequence[Tried]) -> str:
    verdicts = Counter(each.verdict for each in found)
    return " | ".join(str(n or "") for n in (len(found), *(verdicts[v] for v in _VERDICTS)))


if __name__ == "__main__":
    main()
