"""Asks a runtime which open sizes a model really takes, in a process of its own.

What a graph says of shapes is not all: a `Squeeze` of a size that is 1 in the first 703 samples
passes every check of shapes, and fails in the 704th. So onnxruntime, where it is installed, runs
the model at sizes that are proposed, and looks for the last ones that it takes. A stranger's model
is read there, so the process can only answer.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

from autopipe.api.open_sizes import SizeProposal, fit_proposals
from autopipe.config.dimension import Dimension, Sizes, evaluate_size
from autopipe.errors import AutopipeError
from autopipe.host.memory import available
from autopipe.processes import bounds, call
from autopipe.processes.seccomp import confine_thread

if TYPE_CHECKING:
    import numpy as np

Shapes = Mapping[str, tuple[int | str, ...]]
"""The shape of each input, with names and sums of names for open sizes."""

_SECONDS: Final = 12.0
"""For all sizes of a model; what was not tried by then is taken to fit."""
_ONE: Final = 2.0
"""Seconds of one call; a longer one is given up, and taken to fit."""
_GIVEN_UP: Final = ("terminate", "alloc", "memory")
"""Words of a runtime that ran out of time or memory, which says nothing of the sizes."""


def try_proposals(
    found: Mapping[str, SizeProposal], model: Path, shapes: Shapes, dtypes: Mapping[str, str]
) -> dict[str, SizeProposal]:
    """Return proposals without sizes at which onnxruntime refuses to run the model.

    They stay as they are where it is not installed, or does not take the model at all.
    """
    if find_spec("onnxruntime") is None:
        return dict(found)
    request = {
        "model": str(model.absolute()), "shapes": dict(shapes), "dtypes": dict(dtypes),
        "found": {name: [one.dimension.model_dump(), one.why] for name, one in found.items()},
    }  # fmt: skip
    try:
        answer = call.run_module(__name__, request, timeout=5 * _SECONDS)
    except AutopipeError:  # whatever it was, a proposal is no promise
        return dict(found)
    return {name: SizeProposal(Dimension(**one["dimension"]), one["why"])
            for name, one in answer.items()}  # fmt: skip


def _answer_request(request: call.Answer) -> call.Answer:
    """Look for sizes that fit with a session that stays open, and with nothing else to reach."""
    import numpy as np  # noqa: F401 -- loaded before nothing can be written any more
    import onnxruntime  # noqa: F401

    bounds.first_to_go()
    bounds.limit_address_space(available() // 2)
    confine_thread()
    found = {name: SizeProposal(Dimension(**one), why)
             for name, (one, why) in request["found"].items()}  # fmt: skip
    trial = SizeTrial.of(request["model"], request["shapes"], request["dtypes"])
    return {name: asdict(one) | {"dimension": one.dimension.model_dump()}
            for name, one in fit_proposals(found, trial.fits).items()}  # fmt: skip


@dataclass(frozen=True)
class SizeTrial:
    """A session of onnxruntime, which runs a model at many sizes."""

    run: Callable[["dict[str, np.ndarray[Any, Any]]"], object]
    """Runs it once; raises what the runtime raises."""
    shapes: Shapes
    dtypes: Mapping[str, str]
    end: float
    """When the last size is tried, by the monotonic clock."""

    @classmethod
    def of(cls, model: str, shapes: Shapes, dtypes: Mapping[str, str]) -> "SizeTrial":
        """Open a session, which raises where onnxruntime does not take the model."""
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

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
        """Tell whether the model runs at certain sizes, on ones, which most models take."""
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
