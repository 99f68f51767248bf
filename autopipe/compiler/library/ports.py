"""Check the inputs and output arrays of a call against the signature of a library."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Final

import numpy as np

from autopipe.artifacts.signature import Port
from autopipe.config.dimension import Dimension, Sizes, evaluate_size, list_dimension_names
from autopipe.config.suggestion import find_closest
from autopipe.errors import ConfigError

Arrays = Mapping[str, np.ndarray]
"""Inputs or outputs of a call, by name."""

Inputs = Arrays | np.ndarray | Sequence[np.ndarray]
"""Inputs of a call by name, in order, or the only one."""

NO_ARRAYS: Final[Arrays] = MappingProxyType({})


def name_inputs(ports: Sequence[Port], inputs: Inputs) -> Arrays:
    """Return inputs by name. Raises ConfigError for more or fewer than the model has."""
    if isinstance(inputs, (dict, Mapping)):  # in this order: that of an abstract class is slow
        return inputs
    arrays = inputs if isinstance(inputs, list | tuple) else [inputs]
    if len(arrays) != len(ports):
        descriptions = ", ".join(f"{port.name!r} {describe_port(port)}" for port in ports)
        raise ConfigError(
            f"{len(arrays)} inputs are given; the model takes {len(ports)}: {descriptions}"
        )
    return {port.name: array for port, array in zip(ports, arrays, strict=True)}


def check_inputs(ports: Sequence[Port], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inputs as arrays. Raises ConfigError naming an input that does not fit."""
    arrays = {}
    for port in ports:
        name = port.name
        if name not in inputs:
            check_names(ports, inputs)
            raise ConfigError(f"input {name!r} {describe_port(port)} is missing")
        array = np.asarray(inputs[name])
        if array.shape != port.shape or array.dtype != _to_dtype(port.dtype):
            check_names(ports, inputs)
            raise ConfigError(
                f"input {name!r} is {array.dtype} {list(array.shape)}; "
                f"the model takes {describe_port(port)}"
            )
        arrays[name] = array
    if len(inputs) > len(arrays):
        check_names(ports, inputs)
    return arrays


def check_names(ports: Sequence[Port], array_names: Iterable[str], kind: str = "input") -> None:
    """Raise ConfigError for the name of an input or output that the model does not have."""
    names = [port.name for port in ports]
    for name in array_names:
        if name not in names:
            near = find_closest(name, names)
            does = "takes" if kind == "input" else "returns"
            hint = f"did you mean {near!r}?" if near else f"it {does} {', '.join(names)}"
            raise ConfigError(f"the model has no {kind} {name!r}; {hint}")


def check_buffers(ports: Sequence[Port], buffers: Mapping[str, np.ndarray]) -> None:
    """Raise ConfigError for an array that cannot take the output of its name.

    Data-dependent dimensions may have any size; `check_size` compares them.
    """
    check_names(ports, buffers, "output")
    for port in ports:
        if port.name not in buffers:
            continue
        array, subject = buffers[port.name], f"the array for output {port.name!r}"
        if not isinstance(array, np.ndarray):
            raise ConfigError(f"{subject} is a {type(array).__name__}")
        fits = len(array.shape) == len(port.shape) and all(
            size in (wanted, -1) for size, wanted in zip(port.shape, array.shape, strict=True)
        )
        if not fits or array.dtype != _to_dtype(port.dtype):
            raise ConfigError(
                f"{subject} is {array.dtype} {list(array.shape)}; the model returns "
                f"{describe_port(port)}"
            )
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise ConfigError(f"{subject} is read-only or not contiguous in C order")


def check_size(name: str, buffer: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ConfigError where a call returned another shape than that of its array."""
    if buffer.shape != shape:
        raise ConfigError(f"output {name!r} is {list(shape)}; its array {list(buffer.shape)}")


@cache
def _to_dtype(name: str) -> np.dtype:
    return np.dtype(name)


def describe_port(port: Port) -> str:
    """Format dtype and shape of an input or output; `?` is a data-dependent size."""
    return f"{port.dtype} [{', '.join(port.words)}]"


def solve_sizes(
    ports: Sequence[Port],
    dimensions: Mapping[str, Dimension],
    shapes: Mapping[str, tuple[int, ...]],
) -> Sizes:
    """Solve for the size of each dynamic dimension from the shapes of the inputs.

    Raises ConfigError where an input is missing, has another rank, contradicts another one, or a
    size is out of its range or no multiple.
    """
    sizes: dict[str, int] = {}
    for port in ports:
        if port.dimensions:
            if port.name not in shapes:
                check_names(ports, shapes)
                raise ConfigError(f"input {port.name!r} {describe_port(port)} is missing")
            _bind_sizes(port, dimensions, shapes[port.name], sizes)
    for port in ports:
        _check_sums(port, shapes.get(port.name, ()), sizes)
    return {name: sizes[name] for name in dimensions}


def _bind_sizes(
    port: Port, dimensions: Mapping[str, Dimension], shape: tuple[int, ...], sizes: dict[str, int]
) -> None:
    """Add the dynamic sizes of one input to `sizes`."""
    if len(shape) != len(port.shape):
        raise ConfigError(
            f"input {port.name!r} has {len(shape)} dimensions; the model takes "
            f"{describe_port(port)}"
        )
    for axis, (name, size) in enumerate(zip(port.dimensions, shape, strict=True)):
        if name not in dimensions:  # a fixed size, or a sum
            continue
        where = f"input {port.name!r}: dimension {axis} ({name}) is {size}"
        if sizes.setdefault(name, size) != size:
            raise ConfigError(f"{where}, and {sizes[name]} in another place")
        if reason := dimensions[name].refusal(size):
            raise ConfigError(f"{where}, which {reason}")


def _check_sums(port: Port, shape: tuple[int, ...], sizes: Sizes) -> None:
    """Check sizes that are sums of others, such as `past + new`."""
    for axis, (extent, size) in enumerate(zip(port.dimensions, shape, strict=False)):
        if not extent or extent in sizes or not sizes.keys() >= set(list_dimension_names(extent)):
            continue
        if size != (expected_size := evaluate_size(extent, sizes)):
            raise ConfigError(
                f"input {port.name!r}: dimension {axis} ({extent}) is {size}, "
                f"and should be {expected_size}"
            )
