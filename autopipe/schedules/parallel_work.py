"""Minimum amounts of work of a parallel loop, for code that does not know the processor.

Knobs are filled for a processor, by times from `cost.py`. The code that applies them knows neither
the processor nor data-dependent sizes, and uses these numbers. Each is in the unit that its callers
can count, and most stand for 10 to 15 us of one core: a second thread starts and is waited for in
1 to 3 us, and must not cost more than it saves on slower machines, either.
"""

from typing import Final

CALLS_NS: Final = 15_000.0
"""Nanoseconds of elementary functions, where only these are counted."""

CYCLES: Final = 40_000
"""Cycles, at 4 a nanosecond; in loops without vectors a load or a store takes one."""

PRODUCTS: Final = 1 << 20
"""Multiply-adds, at 70 a nanosecond. Knob `shared_from` of template `contraction` takes fewer where
a second thread pays on the processor."""

WINDOW_PRODUCTS: Final = PRODUCTS // 2
"""Elements that windows reduce: these functions are memory-bound."""

STEP_PRODUCTS: Final = PRODUCTS // 16
"""Multiply-adds of a recurrent layer, which has a barrier after each step."""

WEIGHTS: Final = PRODUCTS // 8
"""Weights of 32 bits. One that is read from memory takes as long as 8 products.

Example: a row of 512 by [512, 1376] reads 2.8 MB, which takes one thread 127 us on a Zen 3.
"""

OPERATIONS: Final = 1 << 17
"""Operations along rows, at 9 a nanosecond; an elementary function counts for several."""

ELEMENTS: Final = 1 << 14
"""Elements of elementwise functions: 2 us in vectors, 4 us and more without. Fewer are never
parallel; for more, knobs decide. The same holds for a loop beside others that start threads."""

JOBS: Final = 16
"""Iterations of a loop that are enough to divide among threads; of fewer, inner loops join it."""

UNKNOWN_SIZE: Final = 64
"""Assumed value of a data-dependent size, where no condition on it can be evaluated."""

UNKNOWN_STEPS: Final = 16
"""Assumed iterations of a loop in hand-written functions: a search or a scan ends early."""
