"""Logs of the AutoTVM that TVM had until 2025: JSON lines, read without TVM.

Its x86 templates named their knobs for what ours name too, so a log is a good place to begin. What
it states of times holds for another code generator and is not trusted.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autopipe import foreign
from autopipe.errors import ConfigError
from autopipe.records.left_out import LeftOut
from autopipe.records.seed import Seed, format_convolution_key, format_dense_key
from autopipe.traces.values import allow_integer, allow_list

_SPLIT: Final = 5
"""Axes of a data tensor in NCHWc."""

_BEST: Final = 4
"""Seeds that are kept of an operator."""

_SHAPE: Final = allow_list(allow_integer(1, 1 << 31))
"""What a shape may be; the product of any number of whole numbers of 100 digits takes minutes."""

_COSTS: Final = allow_list(lambda cost: type(cost) in {int, float})
"""What the seconds of a trial may be, a value a repeat."""


@dataclass(frozen=True, slots=True)
class AutoTVMLog:
    """What a log has for us."""

    seeds: tuple[Seed, ...]
    left_out: Mapping[str, int]
    """How many lines were left out, by why."""


def read(lines: Iterable[bytes | None]) -> AutoTVMLog:
    """Read the lines of a log: the fastest settings of each operator."""
    best: dict[str, list[Seed]] = {}
    left_out = LeftOut()
    for line in lines:
        if line is not None and not line.strip():
            continue
        try:
            seed = _parse_seed(foreign.parse_object(line or b""))
        except _LeftOut as reason:
            left_out.add(str(reason))
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            left_out.add("damaged")
        else:
            seeds = [*best.get(seed.key, ()), seed]
            best[seed.key] = sorted(seeds, key=lambda s: s.seconds)[:_BEST]
    return AutoTVMLog(tuple(seed for seeds in best.values() for seed in seeds), left_out.counts())


def refuse_ansor(line: Mapping[str, Any], source: object) -> None:
    """Raise ConfigError if a line is of auto_scheduler's log."""
    if "i" in line and "r" in line:
        raise ConfigError(
            f"{source}: this is a log of auto_scheduler (Ansor): its steps are numbered by the"
            " stages of a TE graph that TVM no longer has, so they cannot be replayed; tune again,"
            " or import a MetaSchedule database"
        )


class _LeftOut(Exception):  # noqa: N818 - carries a reason
    """A line that is sound, and nothing for us."""


def _parse_seed(line: Mapping[str, Any]) -> Seed:
    target, task, arguments, *_ = line["input"]
    costs, error = line["result"][:2]
    if not str(target).startswith("llvm"):
        name = str(target).partition(" ")[0]
        raise _LeftOut(f"for target {name}, whose templates are not ours")
    if task not in _TASKS:
        raise _LeftOut(f"template {task}, which has no likeness here")
    if not _COSTS(costs):
        raise TypeError(costs)
    seconds = sum(map(float, costs)) / len(costs) if costs else math.inf
    if error or not (math.isfinite(seconds) and seconds > 0):
        raise _LeftOut("failed trials")
    knobs = {str(name): value for name, _, value in line["config"]["entity"]}
    document = json.dumps({"template": task, "knobs": knobs}, sort_keys=True)
    return Seed(_TASKS[task](arguments), document, str(target), seconds)


def _describe_convolution(arguments: Sequence[Any]) -> str:
    (data, dtype), (kernel, _) = map(_parse_tensor, arguments[:2])
    return format_convolution_key(
        _unpack_channels(data), _unpack_kernel(kernel), arguments[2:5], 1, dtype
    )


def _describe_depthwise(arguments: Sequence[Any]) -> str:
    (data, dtype), (kernel, _) = map(_parse_tensor, arguments[:2])
    channels, times, *window = _unpack_kernel(kernel)
    one_each = [channels * times, 1, *window]
    return format_convolution_key(_unpack_channels(data), one_each, arguments[2:5], channels, dtype)


def _describe_dense(arguments: Sequence[Any]) -> str:
    ((rows, terms), dtype), (weight, _) = map(_parse_tensor, arguments[:2])
    columns = math.prod(weight) // terms  # packed or not
    return format_dense_key(rows, columns, terms, dtype)


def _parse_tensor(argument: Sequence[Any]) -> tuple[list[int], str]:
    kind, shape, dtype = argument
    if kind != "TENSOR" or not _SHAPE(shape):
        raise TypeError(argument)
    return list(shape), str(dtype)


def _unpack_channels(data: Sequence[int]) -> list[int]:
    """Return NCHW for NCHWc."""
    if len(data) != _SPLIT:
        return list(data)
    n, c, h, w, inner = data
    return [n, c * inner, h, w]


def _unpack_kernel(kernel: Sequence[int]) -> list[int]:
    """Return OIHW for OIHWio."""
    if len(kernel) == _SPLIT - 1:
        return list(kernel)
    o, i, h, w, *inner = kernel
    inner_i, inner_o = inner
    return [o * inner_o, i * inner_i, h, w]


_TASKS: Final[Mapping[str, Callable[[Sequence[Any]], str]]] = {
    "conv2d_NCHWc.x86": _describe_convolution,
    "depthwise_conv2d_NCHWc.x86": _describe_depthwise,
    "dense_pack.x86": _describe_dense,
}
