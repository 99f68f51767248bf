"""Devices behind TVM's RPC tracker: kernels are built here, and uploaded, timed and run there.

A device is held for one candidate at a time, so that runs share it, and damage by a kernel ends
with its session. Each session is a child process, ended at its deadline: TVM's client waits
forever. Failures are distinguished: a kernel that does not load or run fails its own trial; for a
device that does not answer, another is requested from the tracker, and the candidate is retried.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from autopipe.config.tuning import Measure, Reach
from autopipe.errors import SetupError
from autopipe.measure.device_session import LinkedKernel, Timing
from autopipe.measure.tracker import Address, Tracker, Unreached
from autopipe.processes.contained import Child, Failed
from autopipe.processes.failure import How

GRACE: Final = 5.0
"""Seconds after the end of a session within which its server should have reported it."""

_ANSWER: Final = 1.0
"""Seconds that the transfer of a kernel's times may take."""

_ATTEMPTS: Final = 3
"""Devices in a row that may be lost before a run gives up."""

_MEMORY: Final = 4 << 30
"""Bytes that the child of a session may take."""

Found = TypeVar("Found")


class DeviceLost(SetupError):  # noqa: N818 - says what happened
    """A device does not answer, or differs from the previous one."""


class KernelFailed(Exception):  # noqa: N818 - likewise
    """A kernel does not load or run on a working device."""


class SessionEnded(Exception):  # noqa: N818 - likewise
    """A session ended or hung while a kernel ran, through the fault of either."""


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of one key."""

    tracker: Tracker
    key: str
    connect: float
    """Seconds that a device may take to answer."""
    wait: float
    """Seconds to wait for a free device."""
    session: float
    """Seconds that a device belongs to one candidate."""

    @classmethod
    def of(cls, reach: Reach, key: str) -> "Devices":
        """Create the devices of a pipeline file."""
        free = reach.anyone_on_the_network_may_run_code
        tracker = Tracker(str(reach.tracker), reach.connect_timeout, free)
        longest = max(reach.wait_timeout, reach.session_timeout + GRACE)  # another run may have it
        return cls(tracker, key, reach.connect_timeout, longest, reach.session_timeout)

    def known(self) -> None:
        """Raise Unreached unless the tracker knows a device of the key."""
        if self.key not in self.tracker.known_keys():
            raise Unreached(f"no device {self.key!a}: {self.tracker.describe_keys()}")

    @contextmanager
    def opened(self, kernels: Sequence[LinkedKernel], runs: int = 1) -> Generator["OpenSession"]:
        """Hold a device for `runs` runs of each kernel. Raises DeviceLost, and Unreached."""
        seconds = self.session * runs * max(1, len(kernels))
        with Child(lambda: Timing(kernels).answer, memory=_MEMORY) as child:
            yield self.held(child, seconds)

    def held(self, child: Child, seconds: float) -> "OpenSession":
        """Open a session on a device in a child, which holds it for its life or `seconds`.

        Raises DeviceLost, and Unreached.
        """
        address = self.tracker.request(self.key, self.wait)
        session = OpenSession(child, address, seconds)
        request = {"do": "open", **asdict(address), "seconds": seconds}
        session.device = dict(session.asked(request, self.connect))
        return session

    def trying(self, work: Callable[[], Found]) -> Found:
        """Run work with a device, and retry it with up to two others.

        Raises SetupError where three devices in a row are lost.
        """
        lost: DeviceLost | None = None
        for _ in range(_ATTEMPTS):
            try:
                return work()
            except DeviceLost as error:
                lost = error
        raise SetupError(f"device {self.key}, {_ATTEMPTS} times in a row: {lost}")


class OpenSession:
    """A held device, from the view of the child's parent."""

    device: Mapping[str, object]
    """The description of the device."""

    def __init__(self, child: Child, address: Address, seconds: float) -> None:
        self._child = child
        self.address = address
        self._seconds = seconds

    def load(self, place: int) -> None:
        """Upload and load a library. Raises DeviceLost, and KernelFailed."""
        self.asked({"do": "load", "place": place}, self._seconds + GRACE)

    def time(self, place: int, limits: Measure, best: float) -> Mapping[str, Any]:
        """Measure a library; return JSON values. Raises as `load`."""
        request = {
            "do": "time", "place": place, "best": best, "limits": limits.model_dump(mode="json"),
        }  # fmt: skip
        try:
            return dict(self.asked(request, limits.run_timeout + _ANSWER))
        except Hung:
            raise KernelFailed(f"running took longer than {limits.run_timeout:g} s") from None

    def asked(self, request: Mapping[str, object], seconds: float) -> Any:  # noqa: ANN401 - JSON
        """Send a request to the child; return its answer. Raises Hung, DeviceLost, KernelFailed."""
        self._child.seconds = seconds
        try:
            answer = self._child.ask(request)
        except Failed as error:
            if error.how is How.HUNG:
                raise Hung(f"{self.address} gave no answer within {seconds:g} s") from None
            raise DeviceLost(f"{self.address}: {error}") from None
        if "lost" in answer:
            raise DeviceLost(f"{self.address}: {answer['lost']}")
        if "late" in answer:
            raise KernelFailed(
                f"the session took longer than {self._seconds:g} s; "
                "raise tuning.measure.session_timeout"
            )
        if "error" in answer:
            raise KernelFailed(str(answer["error"]))
        return answer["ok"]


class Hung(DeviceLost):
    """A device gives no answer in time."""
