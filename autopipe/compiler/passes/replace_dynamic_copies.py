"""Replace copies that change nothing but the shape by views before kernels become tasks.

No schedule is planned, compiled and checked for a kernel that no library has. Only with dynamic
shapes: a static graph keeps its tasks, and has views from `replace_copies_by_views` of *build* on.
"""

import tvm

from autopipe.compiler.dynamic_sizes.kernel_sizes import is_dynamic
from autopipe.compiler.passes.replace_copies_by_views import replace_copies_by_views


def replace_dynamic_copies(module: tvm.IRModule) -> tvm.IRModule:
    """Replace such copies of a lowered module with dynamic shapes, and remove their kernels."""
    return replace_copies_by_views(module) if is_dynamic(module) else module
