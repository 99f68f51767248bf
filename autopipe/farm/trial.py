"""What Dask calls on a worker: one function, whose argument and result are text."""

from typing import TYPE_CHECKING

from autopipe.farm.wire import WorkAnswer

if TYPE_CHECKING:
    from autopipe.farm.workbench import Workbench

bench: "Workbench | None" = None
"""The bench of this process, which `worker` sets."""


def do(order: str, seconds: float) -> str:
    """Have the bench of this worker do an order; it may say nothing for so many seconds."""
    if bench is None:
        return WorkAnswer("", lost="this worker is none of `autopipe worker`").text()
    return bench.do(order, seconds)
