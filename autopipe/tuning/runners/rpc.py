"""The runner `rpc`: candidates are built here, and timed on devices behind TVM's RPC tracker."""

import math
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

from autopipe.config.tuning import Measure
from autopipe.environment.facet import Facet
from autopipe.environment.toolchain import find_architecture
from autopipe.errors import SetupError
from autopipe.measure.device_session import LinkedKernel
from autopipe.measure.devices import (
    DeviceLost,
    Devices,
    KernelFailed,
    OpenSession,
    SessionEnded,
)
from autopipe.measure.linked import link_candidate
from autopipe.measure.measurement import Candidate, Measurement, Repeatable, to_measurement
from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import How
from autopipe.safety.on_device import DeviceChecker
from autopipe.store.passing import open_temporary_folder
from autopipe.tuning.runners.runner import Wanted

_TRIES: Final = 2
"""Sessions that a kernel may end before it counts as its own failure."""


class RpcRunner:
    """One candidate after the other, on whichever device of the key is free."""

    width = 1

    def __init__(self, request: Wanted, devices: Devices) -> None:
        """Open a device, and check its results. Raises SetupError."""
        self._wanted, self._devices = request, devices
        devices.known()
        self._found = devices.trying(self._read_device_facts)
        threads, cores = self._found["threads"], request.conditions.hardware.cores
        if threads != cores:
            raise SetupError(
                f"{devices.key}: its server runs kernels on {threads} threads, and target.num_cores"
                f" is {cores}: start it with TVM_NUM_THREADS={cores}"
            )
        triple = request.facts[Facet.TARGET].get("mtriple")
        machine = find_architecture(str(triple) if triple else None)
        facts = {name: value for name, value in self._found.items() if value is not None}
        self.device: Mapping[str, object] = {"machine": machine, "rpc": devices.key, **facts}
        self.checker = DeviceChecker(request.conditions, devices, request.linker)
        self.checker.probe()

    def measure(
        self,
        candidates: Sequence[Repeatable],
        best: float = math.inf,
        *,
        same_task: bool = True,
        until: float = math.inf,
    ) -> Generator[tuple[int, Measurement]]:
        """Yield place and measurement of each candidate, in order; builds are some ahead."""
        with open_temporary_folder() as folder, ExitStack() as open_ones:
            children: list[Child] = []
            for place in range(len(candidates)):
                if monotonic() > until:
                    return
                for candidate in candidates[len(children) : place + 1 + _count_cores()]:
                    path = folder / f"{len(children)}.so"
                    children.append(open_ones.enter_context(self._start_build(candidate, path)))
                result = self._finish_build(children[place])
                if isinstance(result, LinkedKernel):
                    result = self._time_kernel(result, best)
                best = min(best, result.median) if same_task else best
                yield place, result

    def rounds(self, candidates: Sequence[Repeatable], count: int) -> list[Measurement]:
        """Time all candidates in turn for `count` rounds, on one device."""
        with open_temporary_folder() as folder, ExitStack() as open_ones:
            children = [
                open_ones.enter_context(self._start_build(candidate, folder / f"{place}.so"))
                for place, candidate in enumerate(candidates)
            ]
            results = [self._finish_build(child) for child in children]
            kernels = [kernel for kernel in results if isinstance(kernel, LinkedKernel)]
            kernel_times = iter(self._time_in_turn(kernels, count) if kernels else ())
            return [
                found if isinstance(found, Measurement) else next(kernel_times) for found in results
            ]

    def close(self) -> None:
        """End nothing: a session ends with its candidate."""

    @contextmanager
    def _open_session(
        self, kernels: Sequence[LinkedKernel], runs: int = 1
    ) -> Generator[OpenSession]:
        """Hold a device that is like the first one. Raises DeviceLost, and SetupError."""
        with self._devices.opened(kernels, runs) as session:
            changed_names = {
                name for name in self._found if session.device.get(name) != self._found[name]
            }
            for name in sorted(changed_names):
                raise DeviceLost(
                    f"{session.address} is another device than the first of this run: {name} is "
                    f"{session.device.get(name)!a}, was {self._found[name]!a}"
                )
            for place in range(len(kernels)):
                session.load(place)
            yield session

    def _read_device_facts(self) -> dict[str, object]:
        with self._devices.opened([]) as session:
            return dict(session.device)

    def _time_kernel(self, kernel: LinkedKernel, best: float) -> Measurement:
        """Return the measurement of a kernel, which may be its failure. Raises SetupError."""

        def once() -> Measurement:
            with self._open_session([kernel]) as session:
                return _time_once(session, 0, self._wanted.measure, best)

        try:
            return self._run_with_retries(once)
        except (KernelFailed, SessionEnded) as error:
            return Measurement(error=str(error))

    def _time_in_turn(self, kernels: Sequence[LinkedKernel], count: int) -> list[Measurement]:
        """Return the times of kernels in rounds, or one failure for all of them."""
        limits = self._wanted.measure.model_copy(update={"repeat": 1})

        def once() -> list[Measurement]:
            with self._open_session(kernels, count) as session:
                rounds = [
                    [_time_once(session, place, limits, math.inf) for place in range(len(kernels))]
                    for _ in range(count)
                ]
            return [
                to_measurement(tuple(found.median for found in times), cut=False)
                for times in zip(*rounds, strict=True)
            ]

        try:
            return self._run_with_retries(once)
        except (KernelFailed, SessionEnded) as error:
            return [Measurement(error=str(error))] * len(kernels)

    def _run_with_retries(self, once: Any) -> Any:  # noqa: ANN401 - whatever `once` returns
        """Run a function, once more if its session ends while a kernel runs."""
        for attempt in range(1, _TRIES + 1):
            try:
                return self._devices.trying(once)
            except SessionEnded:
                if attempt == _TRIES:
                    raise
        raise AssertionError

    def _start_build(self, candidate: Candidate, path: Path) -> Child:
        """Begin to build a candidate in a child."""
        target, linker = self._wanted.conditions.target, self._wanted.linker
        limits = self._wanted.measure

        def built(_: object) -> dict[str, object]:
            kernel = link_candidate(candidate, target, path, linker)
            return {"path": kernel.path, "ports": kernel.ports}

        child = Child(lambda: built, seconds=limits.build_timeout, memory=limits.memory << 20)
        child.tell()
        return child

    def _finish_build(self, child: Child) -> LinkedKernel | Measurement:
        """Return the kernel that a child built, or its failure; end the child."""
        try:
            answer = child.answer()
        except Failed as error:
            if error.how is How.HUNG:
                limit = self._wanted.measure.build_timeout
                return Measurement(error=f"building took longer than {limit:g} s")
            is_crash = error.how in {How.CRASHED, How.ENDED}
            return Measurement(error=f"building crashed: {error}" if is_crash else str(error))
        finally:
            child.close()
        ports = tuple((tuple(shape), dtype) for shape, dtype in answer["ports"])
        return LinkedKernel(answer["path"], ports)


def open_runner(request: Wanted) -> RpcRunner:
    """Open the runner of RPC devices. Raises SetupError if no device is usable."""
    return RpcRunner(request, Devices.of(request.reach, str(request.measure.key)))


def _time_once(session: OpenSession, place: int, limits: Measure, best: float) -> Measurement:
    try:
        times = session.time(place, limits, best)
    except DeviceLost as error:
        raise SessionEnded(f"running ended the session: {error}") from None
    return Measurement(tuple(times["seconds"]), times["error"], times["cut"])


def _count_cores() -> int:
    return len(os.sched_getaffinity(0))
