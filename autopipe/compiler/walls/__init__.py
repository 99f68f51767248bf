"""What stands between a module and the machine that runs it, whoever scheduled the module.

`module` looks through TIR before code generation, `text` through the LLVM IR that came of it before
any of it is run, `linked` through objects and libraries. None of them knows where a schedule came
from; `gate` is the one way to machine code, and passes through all.
"""
