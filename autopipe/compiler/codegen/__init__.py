"""Code generation: the passes over kernels, one a file, and the calls of TVM's code generation.

`compile_kernels` is the only file that calls it. The order of passes is in
`compiler/pass_lists.py`.
"""
