"""cuBLAS, through TVM's runtime, if that was built with it; the wheel of 0.27 was not."""

from typing import Final

from autopipe.libraries.library import Library, Packed, Pattern

CUBLAS: Final = Library(
    name="cublas",
    takes=(Pattern("matmul", dtypes=("float32", "float16")),),
    interface=Packed("tvm.contrib.cublas.matmul"),
    least=1 << 24,
    device="cuda",
)
