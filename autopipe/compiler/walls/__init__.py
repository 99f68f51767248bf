"""Code inspection: allow lists that IR and machine code must pass before code may run.

They are the same for all schedules.

- `module` checks TIR before code generation.
- `text` checks the LLVM IR of code generation, and CUDA C++, before any of it runs.
- `check_objects` checks object files before they are linked, and the linked library.
- `model_check` checks a model before any of it is compiled.

`codegen/compile_kernels.py` is the only way to machine code, and calls them.
"""
