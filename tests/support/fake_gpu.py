"""A driver and a runtime of CUDA that compute nothing: what runs on a GPU, as far as there is none.

Memory of the device is memory, copies copy, a kernel is only written down, and takes 1 ms. Each
line of the log is the process, what it did, and with what.
"""

import os
import subprocess
from pathlib import Path

LOG = "AUTOPIPE_FAKE_GPU_LOG"

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

static void note(const char* what, const char* with) {
  if (FILE* log = std::fopen(std::getenv("AUTOPIPE_FAKE_GPU_LOG"), "a")) {
    std::fprintf(log, "%d %s %s\n", getpid(), what, with);
    std::fclose(log);
  }
}
#define NOTHING(name) int name() { return 0; }
#define TEXT(name) const char* name(int) { return "fake"; }

extern "C" {
#ifdef DRIVER
static int ready = 3;  // CUDA_ERROR_NOT_INITIALIZED
int cuInit(unsigned) { note("init", ""); return ready = 0; }
int cuCtxGetCurrent(void**) { return ready; }
int cuDriverGetVersion(int* v) { *v = 13000; return 0; }
int cuDeviceGetName(char* name, int, int) { std::strcpy(name, "NVIDIA Fake"); return 0; }
int cuDeviceGetAttribute(int* v, int which, int) { *v = which == 75 ? 9 : 0; return 0; }
int cuModuleLoadData(void** module, const void* code) {
  const char* kind = std::memcmp(code, "\x50\xed\x55\xba", 4) ? "something else" : "machine code";
  note("load", kind);
  *module = strdup(kind);
  return 0;
}
int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = strdup(name);
  return 0;
}
int cuLaunchKernelEx(const void*, void* function, void**, void**) {
  note("launch", (const char*)function);
  return 0;
}
NOTHING(cuModuleUnload)
NOTHING(cuFuncSetAttribute)
NOTHING(cuTensorMapEncodeTiled)
int cuGetErrorName(int, const char** text) { *text = "fake"; return 0; }
int cuGetErrorString(int, const char** text) { *text = "fake"; return 0; }
#else
int cudaGetDeviceCount(int* n) { note("count", ""); *n = 1; return 0; }
int cudaGetDevice(int* device) { *device = 0; return 0; }
int cudaDeviceGetAttribute(int* v, int, int) { *v = 9; return 0; }
int cudaMalloc(void** memory, size_t size) {
  note("malloc", "");
  *memory = std::calloc(1, (size + 511) / 256 * 256);
  return 0;
}
int cudaFree(void* memory) { std::free(memory); return 0; }
int cudaMallocHost(void** memory, size_t size) { *memory = std::malloc(size); return 0; }
int cudaFreeHost(void* memory) { std::free(memory); return 0; }
int cudaMemcpyAsync(void* to, const void* from, size_t size, int, void*) {
  std::memcpy(to, from, size);
  return 0;
}
int cudaMemGetInfo(size_t* left, size_t* all) { *left = *all = 1u << 30; return 0; }
int cudaStreamCreate(void** stream) { *stream = nullptr; return 0; }
int cudaStreamCreateWithFlags(void** stream, unsigned) { *stream = nullptr; return 0; }
int cudaEventCreate(void** event) { *event = nullptr; return 0; }
int cudaEventElapsedTime(float* milliseconds, void*, void*) { *milliseconds = 1; return 0; }
TEXT(cudaGetErrorName)
TEXT(cudaGetErrorString)
NOTHING(cudaSetDevice)
NOTHING(cudaGetDeviceProperties)
NOTHING(cudaGetLastError)
NOTHING(cudaPeekAtLastError)
NOTHING(cudaMemcpyPeerAsync)
NOTHING(cudaEventDestroy)
NOTHING(cudaEventRecord)
NOTHING(cudaEventSynchronize)
NOTHING(cudaStreamSynchronize)
NOTHING(cudaStreamDestroy)
NOTHING(cudaStreamWaitEvent)
NOTHING(cudaStreamBeginCapture)
NOTHING(cudaStreamEndCapture)
NOTHING(cudaGraphDestroy)
NOTHING(cudaGraphExecDestroy)
NOTHING(cudaGraphInstantiate)
NOTHING(cudaGraphLaunch)
#endif
}
"""

LIBRARIES = {
    "libcuda.so.1": ["-DDRIVER"],
    "libcudart.so.13": ["-Wl,--version-script=versions"],
}
"""The libraries, and what makes them of the one source."""


def make(folder: Path) -> dict[str, str]:
    """Put the libraries into a folder; return the variables with which they are found first.

    They lie where a wheel would have them: one that is installed comes after them.
    """
    wheel = folder / "nvidia" / "cu13" / "lib"
    wheel.mkdir(parents=True)
    (folder / "fake.cc").write_text(SOURCE)
    (folder / "versions").write_text("libcudart.so.13 { global: *; };\n")
    for name, options in LIBRARIES.items():
        command = [
            "g++",
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{name}",
            "fake.cc",
            "-o",
            str(wheel / name),
        ]
        subprocess.run([*command, *options], cwd=folder, check=True)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "LD_LIBRARY_PATH": str(wheel),
        "PYTHONPATH": os.pathsep.join(paths),
        LOG: str(folder / "log"),
    }


def log(folder: Path) -> list[tuple[int, str, str]]:
    """Return what was done so far: process, what, with what."""
    path = folder / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(pid), what, rest) for pid, what, rest in (line.split(" ", 2) for line in lines)]
