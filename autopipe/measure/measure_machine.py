"""Measure the numbers of a `Machine` on this one, for `autopipe doctor --machine`.

Kernels with known cycles, bytes or cache lines run one by one, and the minimum of their times
counts: other programs only add to it. The frequency comes first: the cycles of all others follow
from it.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psutil
import tvm
from tvm.target import codegen

from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.library.kernel_threads import use_threads
from autopipe.compiler.target.target import make_target
from autopipe.compiler.tvm_probe import Emit, examine_tvm
from autopipe.config.target import Target
from autopipe.environment.caches import read_line, read_sizes
from autopipe.environment.environment import resolve_target
from autopipe.measure import machine_kernels as kernels
from autopipe.measure.machine_numbers import (
    SYSTEM,
    Number,
    compute_frequency_ghz,
    find_cache_sizes,
    find_fma_units,
)

Array = npt.NDArray[Any]

_REPEATS: Final = 20
_FEW: Final = 5
"""Repeats of long measurements."""
_SPARED: Final = 4
"""Registers that an FMA kernel reserves for its operands."""
_DEFAULT_LINE_BYTES: Final = 64
"""Bytes of a cache line where the system reports none."""
_PASSED: Final = 256
"""Lines that pass from core to core: 16 KB, which fit every first-level cache."""
_REGIONS: Final = 1000
_READ: Final = 64 << 20
"""Bytes that a measurement of a cache reads."""
_BEYOND: Final = 4
"""Bytes read by a measurement of the third level or of memory, as a multiple of the cache before
it."""
_MAX_READ_BYTES: Final = 1 << 30
"""Most bytes of memory that are read."""
_CHASED: Final = (8 << 10, 8 << 20)
"""Bytes of the smallest and of the largest pointer chase."""
_LOADS: Final = 50_000
_ONE_CORE_EACH: Final = -2
"""TVM's mode of a pool with threads that are bound to distinct cores."""
_INDEX: Final = 4
"""Bytes of an index."""
_NO_SIZE: Final = "not measured: the size of the cache is not known"


def measure_numbers(argument: Mapping[str, Any], _emit: Emit) -> dict[str, Any]:
    """Return LLVM's name and features of this machine, and its `numbers` as fields of `Number`.

    `argument` has the `folder` in which the system describes the caches of a core.
    """
    facts = resolve_target(Target(), examine_tvm({}, _emit))
    cores = int(str(facts["num_cores"]))
    use_threads(cores)
    target = make_target(facts)
    bench = _Bench(target, cores, Path(argument["folder"]))
    return {
        "mcpu": facts["mcpu"],
        "features": list(map(str, codegen.llvm_get_cpu_features(target))),
        "numbers": [asdict(number) for number in bench.numbers()],
    }


@dataclass(frozen=True)
class _Bench:
    """Compiles and times kernels on this machine."""

    target: tvm.target.Target
    cores: int
    folder: Path

    def numbers(self) -> Iterator[Number]:
        """Yield all numbers, with a reason for those that cannot be measured here."""
        ghz = self.frequency_ghz()
        yield Number("frequency_ghz", ghz)
        yield from self._measure_fma(ghz)
        yield self._line()
        sizes = self._measure_cache_sizes()
        yield from sizes
        yield from self._measure_bandwidths([size.value for size in sizes], ghz)
        yield from self._threads()

    def frequency_ghz(self) -> float:
        """Measure the frequency in GHz."""
        chain = self._time_kernel(kernels.build_integer_chain(), np.array([1, 3, 5], "int64"))
        return compute_frequency_ghz(chain / kernels.STEPS)

    def _measure_fma(self, ghz: float) -> Iterator[Number]:
        """Yield the latency of an FMA, the number of FMA units, and their width."""
        widths = self._list_vector_bits()
        chains = self._count_registers() - _SPARED

        def cycles(bits: int, chains: int) -> float:
            lanes = bits // 32
            operands, sums = np.full(2 * lanes, 0.5, "float32"), np.ones(chains * lanes, "float32")
            step = (
                self._time_kernel(kernels.build_fma_chains(bits, chains), operands, sums)
                / kernels.STEPS
            )
            return step * ghz / chains

        yield Number("fma_latency_cycles", cycles(widths[0], 1))
        bits, ports = find_fma_units({bits: cycles(bits, chains) for bits in widths})
        yield Number("fma_ports", ports)
        yield Number("vector_bits_of_units", bits)

    def _list_vector_bits(self) -> list[int]:
        """List the vector widths in bits, in ascending order."""
        longer = (("avx", 256), ("avx512f", 512))
        has = codegen.llvm_cpu_has_features
        return [128, *(bits for feature, bits in longer if has(feature, self.target))]

    def _count_registers(self) -> int:
        """Return the number of vector registers."""
        has = codegen.llvm_cpu_has_features
        return 16 if has("sse2", self.target) and not has("avx512f", self.target) else 32

    def _line(self) -> Number:
        line = read_line(self.folder)
        return Number("line_bytes", line, SYSTEM if line else "not measured: the system names none")

    def _measure_cache_sizes(self) -> list[Number]:
        """Return the sizes of the caches: the system's, or those measured by a pointer chase."""
        system_sizes = read_sizes(self.folder)
        sizes_in_order = (
            find_cache_sizes(list(self._measure_latencies()))
            if {"l1", "l2"} - system_sizes.keys()
            else []
        )
        measured_sizes = dict(zip(("l1", "l2"), sizes_in_order, strict=False))
        return [
            _choose_cache_size(level, system_sizes, measured_sizes) for level in ("l1", "l2", "l3")
        ]

    def _measure_latencies(self) -> Iterator[tuple[int, float]]:
        """Yield the bytes of a pointer chase, and the nanoseconds of a dependent load."""
        shortest, longest = _CHASED
        chase = kernels.build_pointer_chase(longest // _INDEX, _LOADS)
        size = shortest
        while size <= longest:
            for bytes_ in (size, size * 3 // 2)[: 1 + (size < longest)]:
                cycle = np.zeros(longest // _INDEX, "int32")
                cycle[: bytes_ // _INDEX] = _build_chase_cycle(bytes_ // _DEFAULT_LINE_BYTES)
                yield (
                    bytes_,
                    self._time_kernel(chase, cycle, np.zeros(1, "int32"), repeats=_FEW) / _LOADS,
                )
            size *= 2

    def _measure_bandwidths(self, sizes: list[float | None], ghz: float) -> Iterator[Number]:
        """Yield the bytes that one core reads from each cache per cycle, and from memory per ns.

        Half of the first and of the second level is read; of the third, four times the second.
        """
        l1, l2, l3 = (int(size or 0) for size in sizes)
        yield self._measure_read_rate("l1_bytes_per_cycle", l1 // 2, 1 / ghz)
        yield self._measure_read_rate("l2_bytes_per_cycle", l2 // 2, 1 / ghz)
        yield self._measure_read_rate("l3_bytes_per_cycle", min(l3 // 2, _BEYOND * l2), 1 / ghz)
        yield self._measure_copy_rate(l2 // 4)
        far = min(_BEYOND * l3, _MAX_READ_BYTES, psutil.virtual_memory().available // 2)
        if l3 and far < 2 * l3:
            yield Number("memory_bytes_per_ns", None, f"not measured: {far >> 20} MiB are free")
        else:
            yield self._measure_read_rate("memory_bytes_per_ns", far, 1)

    def _measure_read_rate(self, name: str, size: int, in_ns: float) -> Number:
        """Measure the bytes that a core reads per `in_ns` nanoseconds."""
        if not size:
            return Number(name, None, _NO_SIZE)
        bits = self._list_vector_bits()[-1]
        sums = np.zeros(kernels.READERS * bits // 32, "float32")
        size -= size % sums.nbytes
        passes = max(1, _READ // size)
        data = np.ones(size // _INDEX, "float32")
        kernel = kernels.build_reads(bits, size, passes)
        time = self._time_kernel(kernel, data, sums, repeats=_REPEATS if passes > 1 else _FEW)
        return Number(name, size * passes / time * in_ns)

    def _measure_copy_rate(self, size: int) -> Number:
        """Measure the bytes of a copy per nanosecond, counting reads and writes."""
        bits = self._list_vector_bits()[-1]
        if not size:
            return Number("copy_bytes_per_ns", None, _NO_SIZE)
        size -= size % (kernels.READERS * bits // 8)
        arrays = [np.ones(size // _INDEX, "float32") for _ in range(2)]
        passes = _READ // size
        time = self._time_kernel(kernels.build_copies(bits, size, passes), *arrays)
        return Number("copy_bytes_per_ns", 2 * size * passes / time)

    def _threads(self) -> Iterator[Number]:
        """Yield the cost of a parallel loop, and of a cache line that another core has written."""
        names = ("thread_start_ns", "shared_line_ns")
        if self.cores == 1:
            yield from (Number(name, None, "not measured: one core") for name in names)
            return
        counters = np.zeros(16 * self.cores, "int32")
        serial, together = (
            _compute_lower_quartile([timer() for _ in range(_REPEATS)])
            for timer in (
                self._timer(
                    kernels.build_regions(self.cores, _REGIONS, parallel=parallel), counters
                )
                for parallel in (False, True)
            )
        )
        yield Number(names[0], (together - serial) / _REGIONS)
        yield Number(names[1], self._measure_shared_line())

    def _measure_shared_line(self) -> float:
        """Measure the nanoseconds of a load from a line that another core has just written."""
        cycle = _build_chase_cycle(_PASSED)
        copy, end = tvm.runtime.tensor(np.zeros_like(cycle)), np.zeros(1, "int32")
        chase = self._timer(kernels.build_pointer_chase(len(cycle), _PASSED), copy, end)
        write = self._timer(kernels.build_remote_copy(len(cycle)), cycle, copy)
        _bind_threads()
        far, near = [], []
        for _ in range(_REPEATS):
            write()
            far.append(chase())
            near.append(chase())
        return (_compute_lower_quartile(far) - _compute_lower_quartile(near)) / _PASSED

    def _time_kernel(
        self, function: tvm.tirx.PrimFunc, *arrays: Array, repeats: int = _REPEATS
    ) -> float:
        """Return the minimum time of a call in nanoseconds."""
        timer = self._timer(function, *arrays)
        return min(timer() for _ in range(repeats))

    def _timer(
        self, function: tvm.tirx.PrimFunc, *arrays: Array | tvm.runtime.Tensor
    ) -> Callable[[], int]:
        """Build a function that calls a kernel once and returns nanoseconds."""
        main = compile_kernel(function, self.target)["main"]
        tensors = [
            array if isinstance(array, tvm.runtime.Tensor) else tvm.runtime.tensor(array)
            for array in arrays
        ]

        def call() -> int:
            start = perf_counter_ns()
            main(*tensors)
            return perf_counter_ns() - start

        return call


def _bind_threads() -> None:
    """Bind the first two threads to a core each; on a busy machine one core may run both."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(_ONE_CORE_EACH, len(cores), [str(core) for core in cores])
    os.sched_setaffinity(0, cores[:1])


def _compute_lower_quartile(times: Sequence[int]) -> float:
    """Return a reproducible time: with two threads the minimum is a coincidence."""
    return sorted(times)[len(times) // 4]


def _choose_cache_size(
    level: str, system_sizes: Mapping[str, int], measured_sizes: Mapping[str, int]
) -> Number:
    """Choose the size of a cache: the system's if it reports one, otherwise the measured one."""
    name = f"{level}_bytes"
    if level in system_sizes:
        return Number(name, system_sizes[level], SYSTEM)
    if level in measured_sizes:
        return Number(name, measured_sizes[level])
    return Number(name, None, "not measured: the system names none")


def _build_chase_cycle(lines: int) -> Array:
    """Build the indices of a chase that visits all cache lines once, in random order."""
    order = np.random.default_rng(0).permutation(lines)
    words = _DEFAULT_LINE_BYTES // _INDEX
    cycle = np.zeros(lines * words, "int32")
    cycle[order * words] = np.roll(order, -1) * words
    return cycle
