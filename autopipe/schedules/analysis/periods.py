"""Finds the period of the divisions of indices along an axis."""

import math
from typing import Final

import tvm
from tvm import tirx
from tvm.ir import Expr

from autopipe.compiler.find_nodes import find_nodes
from autopipe.schedules.analysis.expressions import count_occurrences

LONGEST: Final = 8
"""Longest period that is unrolled."""

DIVISIONS: Final = (tirx.FloorDiv, tirx.FloorMod)
"""The divisions in indices."""


def find_period(value: Expr, axis: tvm.ir.Var) -> int:
    """Return the period, in steps along an axis, of all divisions of it in a value.

    1 without divisions, 0 where a divisor is not constant.
    """
    divisors = find_nodes(value, *DIVISIONS)
    periods = [one.b for one in divisors if count_occurrences(one.a, axis)]
    if any(not isinstance(one, tirx.IntImm) or int(one) <= 0 for one in periods):
        return 0
    return math.lcm(*map(int, periods))
