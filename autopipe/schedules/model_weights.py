"""The weights of a model as its libraries take them: transformed once, then packed for each."""

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
    """Weights as the graph wants them; `pack` lays them out as schedules do."""

    def __init__(self, imported: Path, optimized: Path, cores: int) -> None:
        """Transform the weights of *import* as *optimize* says."""
        shorten_spin()
        self._threads = KernelThreads(cores)
        self._host = make_host_target(cores)
        self.imported = module_io.load_weights(imported / "weights.safetensors")
        """By name, as the model has them."""
        names = ImportedModel.read(imported).weights
        transform = module_io.load_module(optimized / "transform.json")
        self._shared = self._evaluate_on_threads(transform, [self.imported[name] for name in names])

    def pack(self, packing: tvm.IRModule) -> list[np.ndarray]:
        """Return the weights of a library, whose build left this work on them."""
        return self._evaluate_on_threads(packing, self._shared)

    def _evaluate_on_threads(
        self, work: tvm.IRModule, values: list[np.ndarray]
    ) -> list[np.ndarray]:
        return self._threads.run(
            evaluate_weights, work, values, self._host,
            lambda module: default.schedule(module, self._host),
        )  # fmt: skip
