"""Checks schedules on devices against the plain loops on this host, on the same inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm
from tvm import te

from autopipe.compiler.library.kernel_threads import shorten_spin
from autopipe.compiler.target.target import make_host_target
from autopipe.environment.toolchain import Linker
from autopipe.errors import SetupError
from autopipe.measure import check, timing
from autopipe.measure.cases import Instance
from autopipe.measure.device_session import Answering
from autopipe.measure.devices import GRACE, DeviceLost, Devices, KernelFailed, SessionEnded
from autopipe.measure.linked import write_library
from autopipe.processes import contained
from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import Failure, How
from autopipe.safety.checking import Checker, Outcome
from autopipe.safety.job import Piece, compute_verdict
from autopipe.safety.verdict import Checked, Finding
from autopipe.schedules.conditions import Conditions
from autopipe.store.passing import open_temporary_folder

_TRIES: Final = 2
"""Sessions that a schedule may end before it counts as its own failure."""

_PROBE: Final = 1 << 12
"""Elements of the test kernel of `probe`, which adds one to each."""


class DeviceChecker:
    """Checks schedules for the target of some conditions on the devices of a key."""

    def __init__(self, conditions: Conditions, devices: Devices, linker: Linker | None) -> None:
        """Configure the checker without starting it."""
        self._conditions, self._devices, self._linker = conditions, devices, linker

    def check(self, pieces: Sequence[Piece]) -> list[Outcome]:
        """Check each piece; return the outcomes in order. Raises SetupError without a device."""
        return [self._check_with_retries(piece) for piece in pieces]

    def plain_runs(self, piece: Piece) -> bool:
        """Return whether the plain loops of a piece run on this host, and agree with themselves."""
        cores = self._conditions.hardware.cores
        host_conditions = Conditions(make_host_target(cores), self._conditions.hardware)
        return Checker(host_conditions).plain_runs(piece)

    def probe(self) -> None:
        """Raise SetupError unless a kernel that adds one runs right on the device."""
        a = te.placeholder((_PROBE,), name="a")
        b = te.compute((_PROBE,), lambda i: a[i] + 1, name="b")
        module = tvm.IRModule({"main": te.create_prim_func([a, b])})
        outcome = self._check_with_retries(Piece("checking", "probe", module, scheduled=module))
        if not isinstance(outcome, Checked) or outcome.finding is not Finding.RIGHT:
            reason = outcome.reason if isinstance(outcome, Checked) else outcome
            raise SetupError(
                f"{self._devices.key}: it does not add one to a number: {reason}; is its TVM of "
                "another version, or target.mcpu of another processor?"
            )

    def _check_with_retries(self, piece: Piece) -> Outcome:
        with open_temporary_folder() as folder:
            path = folder / "scheduled.so"
            for attempt in range(1, _TRIES + 1):
                try:
                    return self._devices.trying(lambda: self._compare_in_child(piece, path))
                except Failed as error:
                    return error
                except SessionEnded as error:
                    if attempt == _TRIES:
                        return Failed(Failure(How.CRASHED, f"on the device: {error}"))
        raise AssertionError

    def _compare_in_child(self, piece: Piece, path: Path) -> Outcome:
        """Run the comparison in a child. Raises SessionEnded, and the errors of `held`."""
        beginning = _Comparison(piece, self._conditions, path, self._linker)
        with Child(lambda: beginning.answer) as child:
            if (verdict := child.ask({"do": "prepare"})["ok"]) is not None:
                return Checked.of(verdict)
            session = self._devices.held(child, self._devices.session)
            try:
                session.load(0)
            except KernelFailed as error:
                return Checked(Finding.WRONG, f"the device does not load it: {error}")
            try:
                session.asked({"do": "fetch"}, self._devices.session + GRACE)
            except KernelFailed as error:
                return Failed(Failure(How.RAISED, f"on the device: {error}"))
            except DeviceLost as error:
                raise SessionEnded(str(error)) from None
            child.seconds = contained.SECONDS
            return Checked.of(child.ask({"do": "judge"})["ok"])


class _Comparison(Answering):
    """A check in its child process: holds the device only while it computes."""

    def __init__(
        self, piece: Piece, conditions: Conditions, path: Path, linker: Linker | None
    ) -> None:
        self._piece, self._conditions, self._path, self._linker = piece, conditions, path, linker
        self._loops: check.PlainLoops
        self._loaded: Any
        self._fetched: dict[int, list[np.ndarray] | None] = {}

    def done(self, request: Mapping[str, Any]) -> object:
        """Execute `prepare`, `load`, `fetch` or `judge`."""
        match request["do"]:
            case "load":
                self._loaded = self.session.load(str(self._path))
                return None
            case "prepare":
                verdict = compute_verdict(self._prepare)
                return None if verdict.finding is Finding.RIGHT else asdict(verdict)
            case "fetch":
                self._fetch()
                return None
        return asdict(compute_verdict(lambda: self._loops.compare(self._ours)))

    def _prepare(self) -> None:
        cores = self._conditions.hardware.cores
        timing.use_threads(cores)
        shorten_spin()
        self._loops = check.PlainLoops(self._piece.workload, make_host_target(cores))
        library = check.compile_schedule(self._piece.candidate, self._conditions.target)
        write_library(library, self._path, self._linker)

    def _fetch(self) -> None:
        """Compute all cases on the device, then release it."""
        for place, instance in enumerate(self._loops.instances):
            inputs = check.make_inputs(instance)
            self._fetched[place] = self.session.run(self._loaded, inputs, instance.counts)
        del self._loaded, self.session

    def _ours(self, instance: Instance, _: list[np.ndarray]) -> list[Any]:
        outputs = self._fetched[self._loops.instances.index(instance)]
        if outputs is None:
            raise check.make_outside_error(instance.case)
        return outputs
