"""Finds after how many outputs along an axis the divisions of indices are alike again."""

import math
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Expr

from autopipe.schedules.analysis.expressions import count_occurrences, find_nodes

LONGEST: Final = 8
"""Most outputs of a period that is written out."""

DIVISIONS: Final = (tirx.FloorDiv, tirx.FloorMod)
"""What takes an index apart."""


def find_period(value: Expr, axis: tvm.ir.Var) -> int:
    """Return after how many steps along an axis all that is divided in a value is alike again.

    1 where nothing is divided, 0 where it is divided by what is no number.
    """
    divisors = find_nodes(value, *DIVISIONS)
    periods = [one.b for one in divisors if count_occurrences(one.a, axis)]
    if any(not isinstance(one, tirx.IntImm) or int(one) <= 0 for one in periods):
        return 0
    return math.lcm(*map(int, periods))
