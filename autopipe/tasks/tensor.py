"""Shape and element type of a tensor."""

import math
import re

from autopipe.config.frozen import Frozen


class Tensor(Frozen, frozen=True):
    """What is known of a tensor before there are values."""

    shape: tuple[int, ...]
    """Size of each dimension; -1 where it is symbolic."""
    dtype: str
    """Element type, in TVM's spelling."""

    @property
    def bytes(self) -> int:
        """Bytes of its elements, symbolic dimensions counted as none."""
        bits = re.search(r"[0-9]+$", self.dtype)
        each = -(-int(bits[0]) // 8) if bits else 1
        return math.prod(max(extent, 0) for extent in self.shape) * each
