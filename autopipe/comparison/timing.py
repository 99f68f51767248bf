"""Judge whether one time is shorter than another, by their spreads."""

from enum import StrEnum

from autopipe.comparison.build import Time


class TimingVerdict(StrEnum):
    """The verdict on a new time against an old one."""

    FASTER = "faster"
    SLOWER = "slower"
    NOISE = "within the noise"
    NO_SPREAD = "no spread is known, not judged"
    ELSEWHERE = "measured elsewhere, not judged"
    SAME_CODE = "the same code, not judged"
    OTHER_LOOPS = "other loops, not judged"
    UNSTEADY = "the reference runtimes moved too, not judged"
    DISTURBED = "other programs ran beside it, not judged"

    @property
    def conclusive(self) -> bool:
        """Whether it is a significant difference."""
        return self in {TimingVerdict.FASTER, TimingVerdict.SLOWER}


def judge_times(old: Time, new: Time, *, elsewhere: bool) -> TimingVerdict:
    """Judge which time is shorter; spreads that overlap or touch are noise."""
    if elsewhere:
        return TimingVerdict.ELSEWHERE
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return TimingVerdict.NO_SPREAD
    if new.high < old.low:
        return TimingVerdict.FASTER
    if new.low > old.high:
        return TimingVerdict.SLOWER
    return TimingVerdict.NOISE
