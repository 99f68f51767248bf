"""Build TVM's `Target` from the resolved facts of a target."""

from collections.abc import Mapping

import tvm
from tvm.target import codegen

from autopipe.backends import BACKENDS, find_backend
from autopipe.backends.backend import Backend
from autopipe.config.suggestion import find_closest
from autopipe.errors import TargetError


def make_target(facts: Mapping[str, object]) -> tvm.target.Target:
    """Build TVM's target from the resolved facts of `Facet.TARGET`.

    Raises TargetError for a processor or GPU that LLVM or nvcc does not know, and for anything else
    that TVM refuses.
    """
    backend, host = find_backend(facts), make_cpu_target(facts)
    if backend.runs_on_host:
        return host
    return tvm.target.Target(backend.target_attributes(facts), host=host)


def make_cpu_target(facts: Mapping[str, object]) -> tvm.target.Target:
    """Build the target of the processor, which is the host of a GPU.

    Raises TargetError for a processor or feature that LLVM does not know. TVM would only log that,
    and compile for `generic`, or without.
    """
    names = ("mcpu", "mattr", "mtriple")
    entries = {"kind": "llvm", **{name: facts[name] for name in names if facts.get(name)}}
    if "mattr" in entries:
        entries["mattr"] = list(facts["mattr"])  # type: ignore[call-overload]
    entries["num-cores"] = facts["num_cores"]
    _check_processor(str(facts["mcpu"]), facts.get("mtriple"))
    for feature in entries.get("mattr", ()):  # type: ignore[attr-defined]
        _check_feature(str(feature), entries)
    return _make_target(entries)


def backend_of(target: tvm.target.Target) -> Backend:
    """Return the backend of a target."""
    return BACKENDS[str(target.kind.name)]


def find_host_target(target: tvm.target.Target) -> tvm.target.Target:
    """Return the target of the processor that calls kernels: the target itself, or its host."""
    return target if backend_of(target).runs_on_host else target.host


def make_host_target(cores: int) -> tvm.target.Target:
    """Build a target that every processor of the host's architecture can run.

    Weights are transformed with code for it: that code has to run on the host, for any target of
    the model, and has to give the same bits on every machine.
    """
    return tvm.target.Target({"kind": "llvm", "num-cores": cores})


def _check_processor(mcpu: str, mtriple: object) -> None:
    triple = str(mtriple or codegen.llvm_get_system_triple())
    if codegen.llvm_is_valid_cpu(mcpu, triple):
        return
    if not codegen.llvm_is_valid_cpu("generic", triple):
        raise TargetError(f"target.mtriple: LLVM knows no processor for {triple!r}")
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple})
    near = find_closest(mcpu, map(str, codegen.llvm_get_cpu_archlist(target)))
    hint = f"; did you mean {near!r}?" if near else ""
    raise TargetError(f"target.mcpu: LLVM knows no processor {mcpu!r} for {triple}{hint}")


def _check_feature(feature: str, entries: Mapping[str, object]) -> None:
    name = feature[1:]
    features = codegen.llvm_get_cpu_features
    known_features = features(_make_target({**entries, "mattr": [f"+{name}"]}))
    if name not in known_features:
        near = find_closest(name, map(str, known_features))
        hint = f"; did you mean {feature[0] + near!r}?" if near else ""
        raise TargetError(
            f"target.mattr: LLVM knows no feature {name!r} of {entries['mcpu']}{hint}"
        )


def _make_target(entries: Mapping[str, object]) -> tvm.target.Target:
    try:
        return tvm.target.Target(entries)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise TargetError(f"TVM refuses the target {entries}: {reason}") from None
