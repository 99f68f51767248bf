"""The headroom after tuning: the time of each task above the lower bound of the machine."""

from autopipe.artifacts.document import Part
from autopipe.artifacts.numbers import Amount, Count, TaskName


class TaskHeadroom(Part, frozen=True):
    """The distance of a task's winner from its bound, and why its search ended.

    Times are median seconds of one call.
    """

    name: TaskName
    share: Amount
    """Its share of the model's time before the search."""
    untuned: Amount | None
    """With the schedule of an untuned build; null if that has no time."""
    tuned: Amount
    """With the winner."""
    bound: Amount
    """Lower bound of any schedule; 0 if unknown."""
    left: Amount
    """Time of all calls of the winner above the bound, as a share of the model's time before the
    search."""
    trials: Count
    ended: str
    """Why it got no more trials."""
