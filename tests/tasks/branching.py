"""A model that chooses what to compute."""

import tvm

from autopipe.compiler import lowering
from autopipe.compiler.tasks import extract_tasks
from tests.compiler.graphs import TARGET

_SOURCE = """
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32"), c: R.Tensor((), "bool")
    ):
        if c:
            y = R.matmul(x, w)
        else:
            y = R.nn.relu(x)
        return y
"""


def names() -> list[str]:
    """Return the ops of its tasks."""
    module = tvm.script.from_source(_SOURCE)
    lowered = lowering.lower(lowering.optimize(module, 3, {}, TARGET, print).module, TARGET)
    return [task.info.names[0] for task in extract_tasks(lowered)[0]]
