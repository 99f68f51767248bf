"""Runs searches in a child process, so that a crash or hang of one costs that task only.

All searches share the child, because they share a cost model. When it dies, the next request
starts another one, and each search begins there anew from what has been measured.
"""

import gc
import json
import os
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final, NoReturn

from autopipe.errors import StageError
from autopipe.pipeline.lifeline import die_with_parent
from autopipe.schedules.engine import Engine, Known, Problem, Search

_DEADLINE: Final = 120.0
"""Seconds after which a search that has not answered counts as hung."""

_TAIL: Final = 500
"""Characters of an error that are worth keeping."""

Engines = Mapping[str, Callable[[], Engine]]
"""What makes each engine, by name; called in the child, when the first search of one begins."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One engine on one task."""

    engine: str
    problem: Problem
    """Without `known`, which is asked for when a search begins."""


class SearchError(StageError):
    """A search failed; the task is left, the others go on."""


class Searcher:
    """Asks searches for proposals. Fork-safe only while this process has a single thread."""

    def __init__(
        self, engines: Engines, arms: Sequence[Arm], known: Callable[[int], Sequence[Known]]
    ) -> None:
        """Take all arms; `known` returns what was measured for the arm of that index."""
        self._engines = engines
        self._arms = arms
        self._known = known
        self._open: set[int] = set()
        self._pid = 0
        self._link: Connection | None = None

    def propose(self, arm: int, count: int) -> list[str] | None:
        """Return schedules to measure, [] if there are no more, None if the engine has none ever.

        Raises SearchError if the search fails, crashes or hangs.
        """
        if arm not in self._open:
            known = [asdict(known) for known in self._known(arm)]
            if not self._ask(arm, "begin", known):
                return None
            self._open.add(arm)
        schedules: list[str] = self._ask(arm, "propose", count)
        return schedules

    def learn(self, arm: int, measured: Sequence[Known]) -> None:
        """Tell a search how its last proposals did; one that is gone has nothing to learn."""
        if arm in self._open:
            self._ask(arm, "learn", [asdict(known) for known in measured])

    def close(self) -> None:
        """End the child."""
        if self._link is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._buried(self._link)

    def _buried(self, link: Connection) -> str:
        """Wait for the child to end, and return what ended it."""
        link.close()
        self._link = None
        self._open.clear()
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return signal.Signals(-code).name if code < 0 else f"itself, with status {code}"

    def _ask(self, arm: int, method: str, argument: object) -> Any:  # noqa: ANN401 - JSON
        link = self._link or self._start()
        try:
            link.send_bytes(json.dumps([arm, method, argument]).encode())
            if not link.poll(_DEADLINE):
                self.close()
                raise SearchError(f"the search gave no answer within {_DEADLINE:g} s")
            answer = json.loads(link.recv_bytes())
        except (EOFError, OSError):
            raise SearchError(f"the search was ended by {self._buried(link)}") from None
        if "error" in answer:
            raise SearchError(answer["error"])
        return answer["ok"]

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _serve(self._engines, self._arms, theirs, parent)
        theirs.close()
        self._link = ours
        return ours


def _serve(engines: Engines, arms: Sequence[Arm], link: Connection, parent: int) -> NoReturn:
    """Answer requests until the other end is closed; never return, whatever happens."""
    try:
        die_with_parent(parent)
        gc.freeze()  # what the parent made stays; searching through it again takes time
        host = _Host(engines, arms)
        while True:
            link.send_bytes(json.dumps(_answered(host, link.recv_bytes())).encode())
    except (EOFError, OSError):
        os._exit(0)
    finally:
        os._exit(1)


def _answered(host: "_Host", request: bytes) -> dict[str, Any]:
    arm, method, argument = json.loads(request)
    try:
        return {"ok": getattr(host, method)(arm, argument)}
    except Exception as error:  # noqa: BLE001 - whatever it is, it costs this task only
        reason = "".join(traceback.format_exception_only(error)).strip()
        return {"error": reason[-_TAIL:]}


class _Host:
    """The searches that live in the child, by the index of their arm."""

    def __init__(self, makers: Engines, arms: Sequence[Arm]) -> None:
        self._makers = makers
        self._arms = arms
        self._engines: dict[str, Engine] = {}
        self._searches: dict[int, Search] = {}

    def begin(self, index: int, known: Sequence[Mapping[str, Any]]) -> bool:
        arm = self._arms[index]
        problem = replace(arm.problem, known=_known(known))
        if arm.engine not in self._engines:
            self._engines[arm.engine] = self._makers[arm.engine]()
        search = self._engines[arm.engine].search(problem)
        if search is not None:
            self._searches[index] = search
        return search is not None

    def propose(self, index: int, count: int) -> list[str]:
        return self._searches[index].propose(count)

    def learn(self, index: int, measured: Sequence[Mapping[str, Any]]) -> None:
        self._searches[index].learn(_known(measured))


def _known(entries: Sequence[Mapping[str, Any]]) -> list[Known]:
    return [Known(**entry) for entry in entries]
