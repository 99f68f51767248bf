"""The weights of a model for its libraries: transformed once, then packed for each library."""

from pathlib import Path

import numpy as np
import tvm

from autopipe.artifacts.model import ImportedModel
from autopipe.compiler import module_io
from autopipe.compiler.library.evaluate_weights import evaluate_weights
from autopipe.compiler.library.kernel_threads import KernelThreads, shorten_spin
from autopipe.compiler.target.target import make_host_target
from autopipe.schedules.engines import default


class ModelWeights:
    """Transformed weights of a model; `pack` converts them to the layouts of its schedules."""

    def __init__(self, import_folder: Path, optimize_folder: Path, cores: int) -> None:
        """Transform the weights of *import* by the transformation of *optimize*."""
        shorten_spin()
        self._threads = KernelThreads(cores)
        self._host = make_host_target(cores)
        self.imported = module_io.load_weights(import_folder / "weights.safetensors")
        """The weights of the model, by name."""
        names = ImportedModel.read(import_folder).weights
        transform = module_io.load_module(optimize_folder / "transform.json")
        self._shared = self._evaluate_on_threads(transform, [self.imported[name] for name in names])

    def pack(self, packing: tvm.IRModule) -> list[np.ndarray]:
        """Return the packed weights of a library; `packing` is the module that its build wrote."""
        return self._evaluate_on_threads(packing, self._shared)

    def _evaluate_on_threads(
        self, work: tvm.IRModule, values: list[np.ndarray]
    ) -> list[np.ndarray]:
        return self._threads.run(
            evaluate_weights, work, values, self._host,
            lambda module: default.schedule(module, self._host),
        )  # fmt: skip
