"""Shape and element type of a tensor."""

from autopipe.config.frozen import Frozen


class Tensor(Frozen, frozen=True):
    """What is known of a tensor before there are values."""

    shape: tuple[int, ...]
    """Size of each dimension; -1 where it is symbolic."""
    dtype: str
    """Element type, in TVM's spelling."""
