"""Devices behind TVM's RPC tracker: kernels are built here, and sent, timed and run there.

A device is held for one candidate at a time, so that runs share it, and what a kernel spoils ends
with its session. Each session is a child process of ours, ended at its deadline: TVM's client waits
for ever. What fails is told apart: a kernel that does not load or run is its own trial's failure; a
device that does not answer is asked for once more at the tracker, and the candidate tried again.
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
"""Seconds after the end of a session in which its server should have said so."""

_ANSWER: Final = 1.0
"""Seconds that the times of a kernel may take from the device to here."""

_ATTEMPTS: Final = 3
"""Devices in a row that may be lost before a run gives up."""

_MEMORY: Final = 4 << 30
"""Bytes that the child of a session may take."""

Found = TypeVar("Found")


class DeviceLost(SetupError):  # noqa: N818 - says what happened
    """A device does not answer, or is another one than before."""


class KernelFailed(Exception):  # noqa: N818 - likewise
    """A kernel does not load or run on a device that is sound."""


class SessionEnded(Exception):  # noqa: N818 - likewise
    """A session ended or hung while a kernel ran: its own doing, or the device's."""


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of one key."""

    tracker: Tracker
    key: str
    connect: float
    """Seconds that a device may take to answer."""
    wait: float
    """Seconds in which a device has to be free."""
    session: float
    """Seconds that a device belongs to one candidate."""

    @classmethod
    def of(cls, reach: Reach, key: str) -> "Devices":
        """Return the devices that a pipeline file names."""
        free = reach.anyone_on_the_network_may_run_code
        tracker = Tracker(str(reach.tracker), reach.connect_timeout, free)
        longest = max(reach.wait_timeout, reach.session_timeout + GRACE)  # another run may have it
        return cls(tracker, key, reach.connect_timeout, longest, reach.session_timeout)

    def known(self) -> None:
        """Raise Unreached unless the tracker knows a device of the key."""
        if self.key not in self.tracker.known_keys():
            raise Unreached(f"no device {self.key!a}: {self.tracker.told()}")

    @contextmanager
    def opened(self, kernels: Sequence[LinkedKernel], runs: int = 1) -> Generator["OpenSession"]:
        """Hold a device for so many runs of each kernel. Raises DeviceLost, and Unreached."""
        seconds = self.session * runs * max(1, len(kernels))
        with Child(lambda: Timing(kernels).answer, memory=_MEMORY) as child:
            yield self.held(child, seconds)

    def held(self, child: Child, seconds: float) -> "OpenSession":
        """Have a child hold a device for as long as it lives, or so many seconds.

        Raises DeviceLost, and Unreached.
        """
        address = self.tracker.request(self.key, self.wait)
        session = OpenSession(child, address, seconds)
        request = {"do": "open", **asdict(address), "seconds": seconds}
        session.device = dict(session.asked(request, self.connect))
        return session

    def trying(self, work: Callable[[], Found]) -> Found:
        """Return what work with a device comes to, on the third one at the latest.

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
    """A device that is held, as the parent of its child sees it."""

    device: Mapping[str, object]
    """What is known of the device."""

    def __init__(self, child: Child, address: Address, seconds: float) -> None:
        self._child = child
        self.address = address
        self._seconds = seconds

    def load(self, place: int) -> None:
        """Send a library over. Raises DeviceLost, and KernelFailed."""
        self.asked({"do": "load", "place": place}, self._seconds + GRACE)

    def time(self, place: int, limits: Measure, best: float) -> Mapping[str, Any]:
        """Return the measurement of a library as data. Raises as `load`."""
        asked = {
            "do": "time", "place": place, "best": best, "limits": limits.model_dump(mode="json"),
        }  # fmt: skip
        try:
            return dict(self.asked(asked, limits.run_timeout + _ANSWER))
        except Hung:
            raise KernelFailed(f"running took longer than {limits.run_timeout:g} s") from None

    def asked(self, request: Mapping[str, object], seconds: float) -> Any:  # noqa: ANN401 - JSON
        """Return what the child answers. Raises Hung, DeviceLost, and KernelFailed."""
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
