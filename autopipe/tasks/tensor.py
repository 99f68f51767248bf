"""Shape and element type of a tensor."""

import math
import re
from typing import Annotated, Final

from pydantic import Field

from autopipe.config.frozen import Frozen

_MOST_AXES: Final = 64

_Extent = Annotated[int, Field(ge=-1, lt=1 << 63)]


class Tensor(Frozen, frozen=True):
    """Shape and dtype of a tensor."""

    shape: Annotated[tuple[_Extent, ...], Field(max_length=_MOST_AXES)]
    """Size of each dimension; -1 where it is symbolic."""
    dtype: str
    """Element type, in TVM's spelling."""

    @property
    def bytes(self) -> int:
        """Bytes of its elements; 0 with a symbolic dimension."""
        bits = re.search(r"[0-9]+$", self.dtype)
        element_bytes = -(-int(bits[0]) // 8) if bits else 1
        return math.prod(max(extent, 0) for extent in self.shape) * element_bytes
