"""A model whose sizes are known only when it is called: one library for likely sizes each.

model({"x": image of 1x3x640x640})     # lib.0.so, made for 640 x 640
model({"x": image of 1x3x352x96})      # lib.so, which serves every size
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Never

import numpy as np

from autopipe.artifacts.signature import LIBRARY, Port, Signature
from autopipe.compiler.library.loaded_model import LoadedModel
from autopipe.compiler.library.ports import check_names, described
from autopipe.config.dimension import Sizes
from autopipe.errors import ConfigError

_KEPT: Final = 8
"""Sizes whose buffers are kept."""
_FRESH: Final = 16
"""New sizes after which memory that no tensor needs is given back: TVM keeps what it has allocated
for each size."""


class OpenModel:
    """Loaded libraries with their weights. Calls from several threads take turns."""

    def __init__(
        self,
        signature: Signature,
        mains: Mapping[str, Callable[..., Any]],
        weights: Mapping[str, Sequence[object]],
    ) -> None:
        """Take `main` of each library, and its weights, by the name of the file."""
        self.signature = signature
        self._mains, self._weights = mains, weights
        self._entries = {tuple(one.sizes.values()): one.library for one in signature.entries}
        self._ready: OrderedDict[tuple[int, ...], LoadedModel] = OrderedDict()
        self._fresh = 0
        self._lock = threading.Lock()

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one inference; the outputs are the caller's own copies.

        Raises ConfigError where names, shapes or dtypes are not the model's or a size is out of its
        range, StageError where a library fails.
        """
        sizes = sizes_of(self.signature, inputs)
        with self._lock:
            return self._at(sizes)(inputs)

    def stream(self, *_: object, **__: object) -> Never:
        """Raise ConfigError: the states of a stream have one size."""
        raise ConfigError("a model with open sizes has no streams; build it for one size")

    def _at(self, sizes: Sizes) -> LoadedModel:
        """Return the model for certain sizes."""
        key = tuple(sizes.values())
        found = self._ready.get(key)
        if found is None:
            found = self._ready[key] = self._made(sizes, self._entries.get(key, LIBRARY))
            self._clean()
        self._ready.move_to_end(key)
        return found

    def _made(self, sizes: Sizes, library: str) -> LoadedModel:
        from tvm_ffi import Shape

        dimensions = self.signature.dimensions
        steps = Shape(tuple(size // dimensions[name].multiple for name, size in sizes.items()))
        fixed = self.signature.model_copy(update={"inputs": self.signature.at(sizes)})
        return LoadedModel(fixed, self._mains[library], [steps, *self._weights[library]])

    def _clean(self) -> None:
        """Give back memory of sizes that were not asked for lately."""
        if len(self._ready) > _KEPT:
            self._ready.popitem(last=False)
        self._fresh += 1
        if self._fresh == _FRESH:
            from tvm_ffi import get_global_func

            get_global_func("vm.builtin.memory_manager.clear")()
            self._fresh = 0


def sizes_of(signature: Signature, inputs: Mapping[str, np.ndarray]) -> Sizes:
    """Return the size of each dimension that inputs have.

    Raises ConfigError where an input is missing, has another rank, contradicts another one, or a
    size is out of its range or no multiple.
    """
    found: dict[str, int] = {}
    for port in signature.inputs:
        if port.dimensions:
            _read(port, inputs, signature, found)
    return {name: found[name] for name in signature.dimensions}


def _read(
    port: Port, inputs: Mapping[str, np.ndarray], signature: Signature, found: dict[str, int]
) -> None:
    """Add the sizes that one input has."""
    if port.name not in inputs:
        check_names(signature.inputs, inputs)
        raise ConfigError(f"input {port.name!r} {described(port)} is missing")
    shape = np.shape(inputs[port.name])
    if len(shape) != len(port.shape):
        raise ConfigError(
            f"input {port.name!r} has {len(shape)} dimensions; the model takes {described(port)}"
        )
    for axis, (name, size) in enumerate(zip(port.dimensions, shape, strict=True)):
        if not name:
            continue
        where = f"input {port.name!r}: dimension {axis} ({name}) is {size}"
        if found.setdefault(name, size) != size:
            raise ConfigError(f"{where}, and {found[name]} in another place")
        if reason := signature.dimensions[name].refusal(size):
            raise ConfigError(f"{where}, which {reason}")
