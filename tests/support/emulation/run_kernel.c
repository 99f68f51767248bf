/* Calls the kernel of a library once, or $CALLS times, with nothing of TVM: `run_kernel LIB FILE:KIND:DIM,DIM...`.
 *
 * Each argument is a file of numbers of a kind (f4, i1, u1, i4: letter and bytes) in the shape that
 * follows; after the call it holds what the kernel has left there. Threads are taken in turn, and
 * memory is the C library's.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { void *data; int32_t device[2]; int32_t ndim; uint8_t code, bits; uint16_t lanes;
                 int64_t *shape, *strides; uint64_t byte_offset; } Tensor;
typedef struct { int32_t type, zero; void *pointer; } Any;
typedef struct { void *sync; int32_t count; } Group;
typedef int (*Part)(int, Group *, void *);

enum { TENSOR_POINTER = 7, CPU = 1, MOST = 16 };

static int launch(Part part, void *data, int count) {
  Group group = {NULL, count > 0 ? count : 2};
  for (int at = 0; at < group.count; at++)
    if (part(at, &group, data)) return -1;
  return 0;
}
static void *allocate(int type, int id, uint64_t size, int code, int bits) {
  (void)type, (void)id, (void)code, (void)bits;
  return aligned_alloc(64, (size + 63) / 64 * 64);
}
static int release(int type, int id, void *memory) {
  (void)type, (void)id;
  free(memory);
  return 0;
}
static void put(void *library, const char *name, void *function) {
  void **slot = dlsym(library, name);
  if (slot) *slot = function;
}

int main(int count, char **words) {
  void *library = dlopen(words[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  put(library, "__TVMBackendParallelLaunch", launch);
  put(library, "__TVMBackendAllocWorkspace", allocate);
  put(library, "__TVMBackendFreeWorkspace", release);
  int (*kernel)(void *, Any *, int32_t, Any *);
  *(void **)&kernel = dlsym(library, "__tvm_ffi_main");
  Tensor tensors[MOST];
  Any given[MOST], result = {0, 0, NULL};
  int64_t shapes[MOST][MOST];
  size_t sizes[MOST];
  for (int at = 0; at < count - 2; at++) {
    char *kind = strchr(words[at + 2], ':');
    *kind++ = 0;
    char *dims = strchr(kind, ':') + 1;
    uint8_t code = *kind == 'f' ? 2 : *kind == 'u', bytes = (uint8_t)(kind[1] - '0');
    tensors[at] = (Tensor){NULL, {CPU, 0}, 0, code, bytes * 8, 1, shapes[at], NULL, 0};
    sizes[at] = bytes;
    for (char *dim = strtok(dims, ","); dim; dim = strtok(NULL, ","))
      sizes[at] *= (size_t)(shapes[at][tensors[at].ndim++] = atoll(dim));
    tensors[at].data = aligned_alloc(64, (sizes[at] + 63) / 64 * 64);
    FILE *file = fopen(words[at + 2], "rb");
    if (!file || fread(tensors[at].data, 1, sizes[at], file) != sizes[at]) return 2;
    fclose(file);
    given[at] = (Any){TENSOR_POINTER, 0, &tensors[at]};
  }
  const char *calls = getenv("CALLS");
  for (int left = calls ? atoi(calls) : 1; left > 0; left--)
    if (kernel(NULL, given, count - 2, &result)) return 3;
  for (int at = 0; at < count - 2; at++) {
    FILE *file = fopen(words[at + 2], "wb");
    if (!file || fwrite(tensors[at].data, 1, sizes[at], file) != sizes[at]) return 4;
    fclose(file);
  }
  return 0;
}
