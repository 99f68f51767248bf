"""The process on a worker that builds, checks and times: single-threaded, so that it can fork.

A line of JSON is an order with a number, a line its answer. Orders are executed in forked children,
within the deadlines of the order: as many builds in parallel as the machine has cores, and then one
timing at a time, so that no build disturbs a measurement.
"""

import gc
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from time import monotonic
from typing import Any, Final

from autopipe.config.tuning import Measure
from autopipe.environment.facet import Facet, Facts
from autopipe.errors import AutopipeError, StoreError, TargetError
from autopipe.farm.facts import fingerprint_device, list_versions
from autopipe.farm.wire import RemoteCandidate, WorkAnswer, WorkOrder
from autopipe.measure.measurement import Repeatable
from autopipe.measure.turn import Turn
from autopipe.processes import failure
from autopipe.processes.link import Link
from autopipe.processes.start import open_parent_link
from autopipe.store.canonical import digest_json

_KEPT: Final = 2
"""Number of conditions whose measurers are kept."""

_MODULES: Final = 64
"""Number of parsed workloads that are kept."""

_PULSE: Final = 2.0
"""Seconds between two pulses while another run has the turn on this machine."""


class Bench:
    """Executes orders."""

    def __init__(self, link: Link) -> None:
        """Determine the facts of this machine. Raises AutopipeError."""
        from autopipe.compiler import import_tvm  # noqa: F401 -- once, before the first fork
        from autopipe.compiler.tvm_probe import examine_tvm

        self._link = link
        self._said = 0.0
        self._turn = Turn(lambda _: None, self._send_pulse)
        self._measurers: OrderedDict[str, Any] = OrderedDict()
        self._modules: OrderedDict[str, Any] = OrderedDict()
        stack = examine_tvm({}, lambda _: None)
        self.facts = here(stack)
        self._device = fingerprint_device(self.facts)
        self._orders: list[tuple[int, WorkOrder]] = []

    def serve(self) -> None:
        """Send the facts of this machine, and execute orders until the link is closed."""
        self._link.write(failure.encode_answer(self.facts))
        gc.freeze()
        while True:
            if not self._orders:
                self._take_order(self._link.receive())
            for line in self._receive_waiting():
                self._take_order(line)
            self._do_next_orders()

    def _receive_waiting(self) -> list[bytes]:
        from autopipe.processes.link import wait_for_readable

        return self._link.received() if wait_for_readable([self._link], 0.0) else []

    def _take_order(self, line: bytes) -> None:
        number, text = json.loads(line)
        try:
            self._orders.append((number, WorkOrder.read(text)))
        except (ValueError, TypeError, LookupError) as error:
            self._send_answer(number, WorkAnswer(self._device, lost=f"no order: {error}"))

    def _do_next_orders(self) -> None:
        """Execute the first order together with those of the same conditions."""
        if not self._orders:
            return
        number, first = self._orders[0]
        if first.do != "time":
            self._orders.pop(0)
            self._answer_orders([number], partial(self._alone, first))
            return
        kind = _digest_conditions(first)
        like = [
            each
            for each in self._orders
            if each[1].do == "time" and _digest_conditions(each[1]) == kind
        ]
        like = like[: int(first.target["num_cores"])]
        self._orders = [order for order in self._orders if order not in like]
        self._answer_orders([number for number, _ in like], partial(self._time_candidates, like))

    def _answer_orders(
        self, numbers: Sequence[int], do: Callable[[], Sequence[WorkAnswer]]
    ) -> None:
        """Answer all of these orders, also after an error."""
        remaining_numbers = iter(numbers)
        try:
            for answer in do():
                self._send_answer(next(remaining_numbers), answer)
        except AutopipeError as error:
            for number in remaining_numbers:
                self._send_answer(number, WorkAnswer(self._device, refused=str(error)))
        except Exception as error:  # noqa: BLE001 -- a bug here costs these trials, not the worker
            text = failure.describe_raised(error).message
            for number in remaining_numbers:
                self._send_answer(number, WorkAnswer(self._device, lost=text))

    def _time_candidates(self, orders: Sequence[tuple[int, WorkOrder]]) -> Any:  # noqa: ANN401 -- a generator
        """Build candidates in parallel, and time one after the other."""
        measurer, conditions = self._measurer(orders[0][1])
        candidates = [self._build_candidate(order.candidates[0], conditions) for _, order in orders]
        bests = [order.best for _, order in orders]
        for measurement in measurer.each(candidates, bests):
            yield WorkAnswer(self._device, (measurement,))

    def _alone(self, order: WorkOrder) -> list[WorkAnswer]:
        """Execute an order that cannot be combined with others."""
        measurer, conditions = self._measurer(order)
        if order.do == "rounds":
            candidates = [self._build_candidate(each, conditions) for each in order.candidates]
            return [WorkAnswer(self._device, tuple(measurer.rounds(candidates, order.count)))]
        return [WorkAnswer(self._device, checked=self._check_candidate(order, conditions))]

    def _check_candidate(self, order: WorkOrder, conditions: Any) -> Mapping[str, Any]:  # noqa: ANN401 -- TVM
        from autopipe.processes.contained import Failed
        from autopipe.safety.checking import Checker
        from autopipe.safety.job import Piece

        (candidate,) = order.candidates
        checker, workload = Checker(conditions), self._load_module(candidate.workload)
        piece = Piece(
            "replaying",
            "",
            workload,
            implementation=candidate.implementation,
            schedule=candidate.schedule,
        )
        if order.do == "loops":
            return {"plain_runs": checker.plain_runs(piece)}
        try:
            check_piece = replace(
                piece, doing="checking", scheduled=_replay_in_child(piece, conditions)
            )
        except Failed as error:
            return {"failed": str(error)}
        (outcome,) = checker.check([check_piece])
        if isinstance(outcome, Failed):
            return {"failed": str(outcome)}
        if isinstance(outcome, StoreError):
            raise outcome
        return {"found": asdict(outcome)}

    def _measurer(self, order: WorkOrder) -> Any:  # noqa: ANN401 -- TVM is not typed
        """Return the measurer for the conditions of an order, and the conditions.

        Raises TargetError if the target does not fit this machine.
        """
        from autopipe.compiler.target import machine
        from autopipe.measure.local import Local
        from autopipe.schedules.conditions import Conditions

        kind = _digest_conditions(order)
        if kind not in self._measurers:
            machine.check(order.target)
            cores = int(self.facts["device"]["cores"])
            if int(order.target["num_cores"]) > cores:
                reason = (
                    f"target.num_cores is {order.target['num_cores']}, this machine has {cores}"
                )
                raise TargetError(reason)
            conditions = Conditions.of(order.target, fast_algorithms=order.fast_algorithms)
            limits = Measure.model_validate(order.measure)
            local = Local(
                conditions.target, conditions.hardware.cores, limits, self._turn, order.touched
            )
            self._measurers[kind] = local, conditions
            if len(self._measurers) > _KEPT:
                _, (oldest, _) = self._measurers.popitem(last=False)
                oldest.close()
        self._measurers.move_to_end(kind)
        return self._measurers[kind]

    def _build_candidate(self, candidate: RemoteCandidate, conditions: Any) -> Repeatable:  # noqa: ANN401 -- TVM
        from autopipe.schedules.replay import replay_schedule

        workload = self._load_module(candidate.workload)
        make = partial(
            replay_schedule, workload, candidate.implementation, candidate.schedule, conditions
        )
        return Repeatable(
            digest_json({"workload": candidate.workload}), candidate.implementation,
            candidate.schedule, make,
            candidate.surroundings,
        )  # fmt: skip

    def _load_module(self, text: str) -> Any:  # noqa: ANN401 -- TVM is not typed
        from autopipe.compiler import module_io

        if text not in self._modules:
            self._modules[text] = module_io.parse_json(text)
            if len(self._modules) > _MODULES:
                self._modules.popitem(last=False)
        self._modules.move_to_end(text)
        return self._modules[text]

    def _send_answer(self, number: int, answer: WorkAnswer) -> None:
        self._link.send([number, answer.text()])

    def _send_pulse(self) -> None:
        """Report that this process waits for its turn and does not hang."""
        if monotonic() - self._said >= _PULSE:
            self._said = monotonic()
            self._link.send([-1, ""])


def _replay_in_child(piece: Any, conditions: Any) -> Any:  # noqa: ANN401 -- TVM is not typed
    """Replay a schedule in a child; return its module. Raises Failed."""
    from autopipe.compiler import module_io
    from autopipe.processes.contained import Child, Failed
    from autopipe.safety.job import do

    with Child(lambda: lambda _: do(piece, conditions)) as child:
        answer = child.ask()
    if "refused" in answer:
        text = f"the schedule does not fit: {answer['refused']}"
        raise Failed(failure.Failure(failure.How.RAISED, text))
    return module_io.parse_json(answer["module"])


def _digest_conditions(order: WorkOrder) -> str:
    """Digest the conditions under which candidates can be measured by the same measurer."""
    return digest_json(
        [dict(order.target), order.fast_algorithms, dict(order.measure), order.touched]
    )


def select_shared_versions(stack: Mapping[str, str]) -> Facts:
    """Return the facts of the facets whose versions have to be equal on a farm."""
    from autopipe.environment import environment
    from autopipe.extensions import list_distributions
    from autopipe.libraries import list_versions as libraries

    tvm, ffi = map(environment.find_version, ("apache-tvm", "apache-tvm-ffi"))
    return {
        Facet.TVM: {"tvm": tvm, "tvm_ffi": ffi, "llvm": stack["llvm"]},
        Facet.LIBRARIES: dict(libraries()),
        Facet.EXTENSIONS: dict(list_distributions()),
    }


def here(stack: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts of this machine: versions, device, processor and caches."""
    from autopipe.environment import environment
    from autopipe.environment.caches import find_cache_sizes
    from autopipe.environment.machines import find_machine

    return {
        "versions": list_versions(select_shared_versions(stack)),
        "device": environment.describe_device(),
        "processor": {name: stack[name] for name in ("mcpu", "mtriple", "lacks")},
        "caches": find_cache_sizes(
            find_machine(stack["mcpu"], stack["mtriple"].split("-")[0]), here=True
        ),
    }


def main() -> None:
    """Serve the worker that started this program."""
    link = open_parent_link()
    try:
        bench = Bench(link)
    except AutopipeError as error:
        link.write(failure.encode_failure(failure.describe_refused(error)))
        return
    try:
        bench.serve()
    except EOFError:  # the worker is gone
        os._exit(0)


if __name__ == "__main__":
    main()
