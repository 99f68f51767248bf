"""What tuning left on the table: the time of each task above the lower bound of the machine."""

from autopipe.artifacts.document import Part
from autopipe.artifacts.numbers import Amount, Count, TaskName


class TaskHeadroom(Part, frozen=True):
    """How far the winner of a task is from the bound, and why its search ended.

    Times are median seconds of one call.
    """

    name: TaskName
    share: Amount
    """Its part of the model's time before the search."""
    untuned: Amount | None
    """With the schedule of an untuned build; null where that has no time."""
    tuned: Amount
    """With the winner."""
    bound: Amount
    """What no schedule can beat; 0 where that is unknown."""
    left: Amount
    """All calls of the winner above the bound, as a part of the model's time before the search."""
    trials: Count
    ended: str
    """Why it got no more trials."""
