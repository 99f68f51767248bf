"""Analyses of TIR functions for templates and implementations.

`blocks` and `expressions` are the basics. `single_reduction` is what matches of functions with one
reduction have in common. `product`, `gemm`, `convolution`, `windows`, `rows` and `movement`
recognize families of functions, `short_sums` those that multiply int8 or bfloat16, `steps` splits a
function into parts, `dot_products` lists instructions of processors, and `filtering_cost` estimates
the time of Winograd's algorithm.
"""
