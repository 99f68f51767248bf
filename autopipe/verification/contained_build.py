"""Run a build in a process of its own, so that the case on which it crashes can be reported."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np

from autopipe.artifacts.library import BuiltLibrary, Short
from autopipe.artifacts.signature import Signature
from autopipe.errors import StageError
from autopipe.processes.contained import Child, Failed, Handler
from autopipe.processes.failure import How
from autopipe.store import arrays
from autopipe.verification.reference import SECONDS

if TYPE_CHECKING:
    from autopipe.compiler.library.loaded_model import LoadedModel
    from autopipe.compiler.library.open_model import OpenModel

_LOADING: Final = 600.0
"""Seconds to load the build, on top of the time for a case."""


class BuildCrash(StageError):  # noqa: N818 -- says what happened
    """A build did not survive a case: its code reads or writes where it must not, or is wrong."""


class ContainedBuild:
    """Called like the compiled model; a crash ends only its own process."""

    short: Short | None = None
    """The kind of kernels that multiply in bfloat16."""

    def __init__(self, library: Path, work: Path, target: Mapping[str, Any]) -> None:
        """Read the artifact of *build*, `library`, without starting a process; `work` holds arrays.

        `target` is the target that it was built for.
        """
        built_library = BuiltLibrary.read(library)
        self.signature: Signature = built_library.signature
        self.rounded = built_library.rounded
        self.short = built_library.short
        self.target = target
        self._library = library
        self._inputs, self._outputs = work / "build.inputs", work / "build.outputs"
        self._child = Child(self._load_in_child, seconds=SECONDS + _LOADING, bounded=False)

    def __call__(
        self, inputs: Mapping[str, np.ndarray], *, generic: bool = False
    ) -> dict[str, np.ndarray]:
        """Return the outputs by name; with `generic`, those of the library for dynamic shapes.

        Raises BuildCrash where a signal ends the process, StageError for any other failure.
        """
        from safetensors.numpy import load_file

        arrays.save(inputs, self._inputs)
        try:
            refusal = self._child.ask(generic)
        except Failed as error:
            raise (BuildCrash if error.how is How.CRASHED else StageError)(str(error)) from error
        if refusal is not None:
            raise StageError(refusal)
        return dict(load_file(self._outputs))

    def _load_in_child(self) -> Handler:
        """Load the build in the child; return a function that runs it and returns its error.

        All of that happens in a thread of its own: TVM's pool belongs to the calling thread, and
        the pool of the thread that forked has lost its threads and would wait for them forever.
        """
        from safetensors.numpy import load_file

        from autopipe.compiler.library.runtime import LoadedModel, load_artifact

        thread = ThreadPoolExecutor(max_workers=1)
        model = thread.submit(load_artifact, self._library).result()

        def run(generic: bool) -> str | None:  # noqa: FBT001 - JSON
            run_model = partial(cast("OpenModel", model), generic=True) if generic else model
            try:
                inputs = load_file(self._inputs)
                outputs = thread.submit(run_model, inputs).result()
                if isinstance(model, LoadedModel) and model.has_destinations:
                    thread.submit(_compare_written, model, inputs, outputs).result()
                arrays.save(outputs, self._outputs)
            except StageError as error:
                return str(error)
            return None

        return run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()


def _compare_written(
    model: "LoadedModel", inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> None:
    """Raise a StageError unless kernels write the same outputs to memory of the caller's."""
    from autopipe.compiler.library.runtime import allocate_aligned

    destinations = {
        name: allocate_aligned(array.shape, array.dtype) for name, array in outputs.items()
    }
    model(inputs, outputs=destinations)
    for name, array in destinations.items():
        if array.tobytes() != outputs[name].tobytes():
            raise StageError(f"output {name!r} is another one where kernels write to the caller's")
