"""The walls: checks that code passes before it may run. They are the same for all schedules.

- `module` checks TIR before code generation.
- `text` checks the LLVM IR that code generation made, and CUDA C++, before any of it runs.
- `linked` checks object files before they are linked, and the linked library.
- `model_check` looks through a model before any of it is compiled.

`codegen/compile_kernels.py` is the only way to machine code, and calls them.
"""
