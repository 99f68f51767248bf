"""This machine as a resolved target, and parallel loops to compare with: what benchmarks share."""

from collections.abc import Mapping
from typing import Any


def target() -> Mapping[str, object]:
    """Return the facts of a target that is this machine, as a pipeline resolves them."""
    from autopipe.compiler.tvm_probe import examine_tvm
    from autopipe.config.target import Target
    from autopipe.environment.environment import resolve_target

    return resolve_target(Target(), examine_tvm({}, lambda _: None))


def parallel(module: Any) -> Any:  # noqa: ANN401 - tvm
    """Run the outer loops of each block in parallel, and do nothing else."""
    from tvm.s_tir import Schedule

    from autopipe.schedules.analysis.blocks import SPATIAL

    sch = Schedule(module)
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        axes, loops = sch.get(block).iter_vars, sch.get_loops(block)
        if len(axes) == len(loops):
            kinds = zip(loops, axes, strict=True)
            spatial = [loop for loop, axis in kinds if axis.iter_type == SPATIAL]
            if spatial:  # a single number has none
                sch.parallel(sch.fuse(*spatial[:-1] or spatial))
    return sch.mod
