"""Documents as stages leave them, with what a test asks for in them."""

from typing import Any

from autopipe.artifacts.library import BuiltLibrary, LibraryTask
from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.promises import OutputPromises
from autopipe.artifacts.tuning import BestRecord, TunedTask, TuningReport
from autopipe.artifacts.verification import CheckedCase, OutputComparison, Tolerance, Verification


def imported(**fields: Any) -> ImportedModel:
    """Return what *import* says of a model without anything."""
    given: dict[str, Any] = {
        "name": "m", "inputs": (), "outputs": (), "weights": (), "source_sha256": "ab" * 32,
        "synthesized": True, "opset": 17, "selects": {}, "params": 0, "promises": OutputPromises(),
        **fields,
    }  # fmt: skip
    return ImportedModel(**given)


def best_record(workload: str = "0f", **fields: Any) -> BestRecord:
    """Return the best record of a workload."""
    given: dict[str, Any] = {
        "workload": workload, "engine": "ansor", "implementation": "direct", "trials": 3,
        "schedule": '[["a", 1.5]]', "seconds": (1e-6,), **fields,
    }  # fmt: skip
    return BestRecord(**given)


def tuned_task(index: int = 0, workload: str = "0f", **fields: Any) -> TunedTask:
    """Return what became of a task that one engine has tuned."""
    given: dict[str, Any] = {
        "task": index, "name": f"task{index}", "workload": workload, "trials": 3, "failed": 0,
        "engine": "ansor", "implementation": "direct", "seconds": 1e-6, "stopped": None, "rule": 0,
        "share": 0.5, "failures": (), "contenders": (), "over_next": None, "over_start": 1.5,
        **fields,
    }  # fmt: skip
    return TunedTask(**given)


def tuning_report(*tasks: TunedTask, **fields: Any) -> TuningReport:
    """Return how tuning of these tasks went."""
    given: dict[str, Any] = {
        "ended": "all trials are spent", "seconds": 12.25, "session": "ab", "tasks": tasks,
        **fields,
    }  # fmt: skip
    return TuningReport(**given)


def library_task(name: str = "task0", workload: str = "0f", **fields: Any) -> LibraryTask:
    """Return a task that is built with its best record."""
    given: dict[str, Any] = {
        "name": name, "workload": workload, "calls": 2, "engine": "ansor",
        "implementation": "direct", "reason": "best record", "seconds": 1e-6, "rule": 0,
        "checked": True, "unchecked": None, "rejected": (), "contenders": (), "failures": (),
        **fields,
    }  # fmt: skip
    return LibraryTask(**given)


def library(*tasks: LibraryTask, **fields: Any) -> BuiltLibrary:
    """Return what *build* says of a library with these tasks."""
    given: dict[str, Any] = {
        "name": "m", "inputs": (), "outputs": (), "weights": (), "threads": 2, "device": "cpu",
        "target": {}, "versions": {"tvm": "1", "tvm_ffi": "1"}, "libraries": {}, "claimed": {},
        "tasks": tasks, **fields,
    }  # fmt: skip
    return BuiltLibrary(**given)


def checked_case(name: str, *outputs: OutputComparison) -> CheckedCase:
    """Return a case; one without outputs is skipped."""
    return CheckedCase(name=name, skipped=not outputs, outputs=outputs)


def comparison(output: str = "y", **fields: Any) -> OutputComparison:
    """Return how an output compared."""
    return OutputComparison(output=output, tolerance=Tolerance(rtol=1e-3, atol=1e-4), **fields)


def verification(*cases: CheckedCase, **fields: Any) -> Verification:
    """Return what *verify* found on these cases."""
    given = {"reference": "onnxruntime", "reference_version": "1.31.1", "warnings": (), **fields}
    return Verification(cases=cases, **given)
