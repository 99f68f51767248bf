"""OpenBLAS, from the wheel that SciPy's own releases are built with."""

from typing import Final

from autopipe.libraries.library import CBlas, Library, LibraryFile, Pattern

_POINTWISE: Final = {"groups": 1, "strides": [1, 1], "padding": [0, 0, 0, 0]}
"""A pointwise convolution, with a kernel of 1x1."""

OPENBLAS: Final = Library(
    name="openblas",
    takes=(
        Pattern("matmul"),
        Pattern("nn.conv2d", attributes=_POINTWISE, layout="NHWC", shapes={1: (1, 1, None, None)}),
    ),
    interface=CBlas(
        gemm={"float32": "scipy_cblas_sgemm"},
        threads="scipy_openblas_set_num_threads",
        environment={"OPENBLAS_NUM_THREADS": "1"},
    ),
    least=1 << 20,
    distribution="scipy-openblas32",
    extra="openblas",
    files=(
        LibraryFile("scipy_openblas32/lib/libscipy_openblas.so", "libscipy_openblas.so"),
        LibraryFile("licenses/LICENSE.txt", "libscipy_openblas.LICENSE"),
    ),
)
