"""From the resolved target facts to TVM's target."""

from collections.abc import Mapping

import tvm

from autopipe.errors import TargetError


def tvm_target(facts: Mapping[str, object]) -> tvm.target.Target:
    """Return TVM's target for the resolved facts of `Facet.TARGET`.

    Raises TargetError if TVM refuses them, for example for an unknown `mcpu`.
    """
    names = {"kind": "kind", "mcpu": "mcpu", "mattr": "mattr", "mtriple": "mtriple"}
    entries = {name: facts[key] for key, name in names.items() if facts.get(key)}
    if "mattr" in entries:
        entries["mattr"] = list(facts["mattr"])  # type: ignore[call-overload]
    entries["num-cores"] = facts["num_cores"]
    try:
        return tvm.target.Target(entries)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise TargetError(f"TVM refuses the target {entries}: {reason}") from None
