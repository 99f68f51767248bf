"""Reads out of TIR what templates and implementations need to know of a function.

`blocks` and `expressions` are the basics. `product`, `gemm`, `convolution`, `windows`, `rows` and
`movement` recognize families of functions, `short_sums` those that sum bytes or bfloat16, `steps`
cuts a function into parts, `dot_products` knows instructions of processors, and `filtering_cost`
estimates Winograd's algorithm.
"""
