"""From the resolved target facts to TVM's target."""

from collections.abc import Mapping

import tvm
from tvm.target import codegen

from autopipe.config.suggestion import closest
from autopipe.errors import TargetError


def tvm_target(facts: Mapping[str, object]) -> tvm.target.Target:
    """Return TVM's target for the resolved facts of `Facet.TARGET`.

    Raises TargetError for a processor that LLVM does not know, which TVM would take for `generic`
    with a line in the log, and for whatever else TVM refuses.
    """
    names = {"kind": "kind", "mcpu": "mcpu", "mattr": "mattr", "mtriple": "mtriple"}
    entries = {name: facts[key] for key, name in names.items() if facts.get(key)}
    if "mattr" in entries:
        entries["mattr"] = list(facts["mattr"])  # type: ignore[call-overload]
    entries["num-cores"] = facts["num_cores"]
    _check_processor(str(facts["mcpu"]), facts.get("mtriple"))
    try:
        return tvm.target.Target(entries)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise TargetError(f"TVM refuses the target {entries}: {reason}") from None


def _check_processor(mcpu: str, mtriple: object) -> None:
    triple = str(mtriple or codegen.llvm_get_system_triple())
    if codegen.llvm_is_valid_cpu(mcpu, triple):
        return
    if not codegen.llvm_is_valid_cpu("generic", triple):
        raise TargetError(f"target.mtriple: LLVM knows no processor for {triple!r}")
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple})
    near = closest(mcpu, map(str, codegen.llvm_get_cpu_archlist(target)))
    hint = f"; did you mean {near!r}?" if near else ""
    raise TargetError(f"target.mcpu: LLVM knows no processor {mcpu!r} for {triple}{hint}")


def host(cores: int) -> tvm.target.Target:
    """Return a target that every processor of this machine's architecture can run.

    Work on weights is done with it: it has to run here whatever the model is built for, and gives
    the same bits on other machines.
    """
    return tvm.target.Target({"kind": "llvm", "num-cores": cores})
