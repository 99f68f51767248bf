"""Minimum amounts of work of a parallel loop, for code that does not know the processor.

Where a template knows the work of a function when its knobs are filled, it decides by times from
`cost.py`: knobs `threads`, and `shared_from` where the amount here decides otherwise than the
processor would. A record holds the knob, so that it makes the same schedule on any machine.

The amounts decide where the knob is left out, for sizes that are known at run time alone, and for
loops within a function, such as copies of its operands, that have no knob. Each is in the unit that
its callers can count. Rates are those of one core of a Zen 4 (row `zen-4` of the machine table,
measured there where a comment says so), whose threads pay from 5.5 us on. Amounts of 9 us and more
leave room for processors that start threads more slowly.
"""

from typing import Final

CALLS_NS: Final = 15_000.0
"""Nanoseconds of elementary functions, where only these are counted."""

CYCLES: Final = 40_000
"""Cycles: 11 us at 3.7 GHz. In loops without vectors a load or a store takes one."""

PRODUCTS: Final = 1 << 20
"""Multiply-adds of float32: 18 us at 59 a nanosecond, which is the peak (2 ports x 8 lanes). For
int8 it is the same number, 4.4 us: knob `shared_from` of template `dot_product` corrects it."""

WINDOW_PRODUCTS: Final = PRODUCTS // 2
"""Elements that windows reduce: 9 us at the peak, and up to twice where they wait for memory."""

STEP_PRODUCTS: Final = PRODUCTS // 16
"""Multiply-adds of a recurrent layer of a dynamic batch: 1.1 us at the peak, of which steps that
wait for each other reach a part. At static sizes knob `threads` decides."""

WEIGHTS: Final = PRODUCTS // 8
"""Weights of 32 bits, 512 KiB: 28 us from memory, at 18.5 bytes a nanosecond, and 5.1 us from the
shared cache, at 28 bytes a cycle.

Example: a row of 512 by [512, 1376] reads 2.8 MB, which takes one thread 127 us on a Zen 3.
"""

OPERATIONS: Final = 1 << 17
"""Operations along rows: 15 us at 9 a nanosecond; an elementary function counts for several."""

ELEMENTS: Final = 1 << 14
"""Elements of elementwise functions: 2 us in vectors, 4 us and more without. Fewer are never
parallel; for more, knobs decide. The same holds for a loop beside others that start threads."""

JOBS: Final = 16
"""Iterations of a loop that are enough to divide among threads; of fewer, inner loops join it."""

UNKNOWN_SIZE: Final = 64
"""Assumed value of a data-dependent size, where no condition on it can be evaluated."""

UNKNOWN_STEPS: Final = 16
"""Assumed iterations of a loop in hand-written functions: a search or a scan ends early."""
