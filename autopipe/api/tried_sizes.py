"""Run a model with onnxruntime, in a process of its own, to find the sizes that it accepts.

Shape inference does not suffice: a `Squeeze` of a size that is 1 up to 703 samples passes every
check of shapes, and fails at 704. So onnxruntime, where it is installed, runs the model at proposed
sizes, and bisects for the last ones that it accepts. The model is untrusted, so the process is
confined to returning its answer.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

from autopipe.api.dynamic_sizes import SizeProposal, fit_proposals
from autopipe.config.dimension import Dimension, Sizes, evaluate_size
from autopipe.errors import AutopipeError
from autopipe.host.memory import available
from autopipe.host.onnx_session import open_session
from autopipe.processes import bounds, call
from autopipe.processes.seccomp import confine_thread

if TYPE_CHECKING:
    import numpy as np

Shapes = Mapping[str, tuple[int | str, ...]]
"""The shape of each input, with names and sums of names for dynamic sizes."""

_SECONDS: Final = 12.0
"""Seconds for all sizes of a model; sizes not tried by then are assumed to fit."""
_ONE: Final = 2.0
"""Seconds of one call; a longer one is aborted, and assumed to fit."""
_GIVEN_UP: Final = ("terminate", "alloc", "memory")
"""Words in errors of a runtime that ran out of time or memory, which do not refuse a size."""


def try_proposals(
    proposals: Mapping[str, SizeProposal], model: Path, shapes: Shapes, dtypes: Mapping[str, str]
) -> dict[str, SizeProposal]:
    """Restrict proposals to sizes at which onnxruntime runs the model.

    They stay unchanged where it is not installed, or refuses the model at any size.
    """
    if find_spec("onnxruntime") is None:
        return dict(proposals)
    request = {
        "model": str(model.absolute()), "shapes": dict(shapes), "dtypes": dict(dtypes),
        "found": {name: [one.dimension.model_dump(), one.why] for name, one in proposals.items()},
    }  # fmt: skip
    try:
        answer = call.run_module(__name__, request, timeout=5 * _SECONDS)
    except AutopipeError:  # whatever it was, a proposal is no promise
        return dict(proposals)
    return {name: SizeProposal(Dimension(**one["dimension"]), one["why"])
            for name, one in answer.items()}  # fmt: skip


def _answer_request(request: call.Answer) -> call.Answer:
    """Fit proposals with one open session in a confined process."""
    import numpy as np  # noqa: F401 -- loaded before nothing can be written any more
    import onnxruntime  # noqa: F401

    bounds.first_to_go()
    bounds.limit_address_space(available() // 2)
    confine_thread()
    proposals = {name: SizeProposal(Dimension(**one), why)
             for name, (one, why) in request["found"].items()}  # fmt: skip
    trial = SizeTrial.of(request["model"], request["shapes"], request["dtypes"])
    return {name: asdict(one) | {"dimension": one.dimension.model_dump()}
            for name, one in fit_proposals(proposals, trial.fits).items()}  # fmt: skip


@dataclass(frozen=True)
class SizeTrial:
    """A session of onnxruntime that runs a model at many sizes."""

    run: Callable[["dict[str, np.ndarray[Any, Any]]"], object]
    """Runs it once; raises the runtime's errors."""
    shapes: Shapes
    dtypes: Mapping[str, str]
    end: float
    """Deadline of the trials, by the monotonic clock."""

    @classmethod
    def of(cls, model: str, shapes: Shapes, dtypes: Mapping[str, str]) -> "SizeTrial":
        """Open a session; raises where onnxruntime refuses the model."""
        import onnxruntime

        session = open_session(model)

        def run(inputs: "dict[str, np.ndarray[Any, Any]]") -> object:
            options = onnxruntime.RunOptions()
            timer = Timer(_ONE, lambda: setattr(options, "terminate", True))
            timer.start()
            try:
                return session.run(None, inputs, options)
            finally:
                timer.cancel()

        return cls(run, shapes, dtypes, time.monotonic() + _SECONDS)

    def fits(self, sizes: Sizes) -> bool:
        """Whether the model runs at certain sizes on inputs of ones, which most models accept."""
        import numpy as np

        if time.monotonic() > self.end:
            return True
        try:
            self.run({
                name: np.ones([s if isinstance(s, int) else evaluate_size(s, sizes) for s in shape],
                              self.dtypes[name])
                for name, shape in self.shapes.items()
            })  # fmt: skip
        except Exception as error:  # noqa: BLE001 - a runtime's errors have no base in common
            return any(word in str(error).lower() for word in _GIVEN_UP)
        return True


if __name__ == "__main__":
    call.serve_request(_answer_request)
