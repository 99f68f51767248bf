/* What is needed of TVM's runtime, through the C interface of tvm-ffi. */
#ifndef AUTOPIPE_TVM_H
#define AUTOPIPE_TVM_H

#include "runtime.h"

/* Reports the error that the runtime raised, with AUTOPIPE_FAILED or another status. */
autopipe_status fail_with_raised(autopipe_status status, const char *what);

/* Forgets it, where its reason is known. */
void drop_raised(void);

/* Calls a global function of the runtime. The caller owns `result`. */
autopipe_status call_global(const char *name, TVMFFIAny *arguments, int count, TVMFFIAny *result);

/* Looks up a function of a module; `*function` is NULL where it has none. */
autopipe_status get_function(TVMFFIObject *module, const char *name, TVMFFIObject **function);

/* Loads a library and returns the virtual machine in it, ready to run on the CPU. */
autopipe_status load_machine(TVMFFIObject *library, TVMFFIObject **machine);

/* Has a machine call a function before and after each kernel; NULL ends that. */
autopipe_status set_instrument(TVMFFIObject *machine, TVMFFIObject *function);

autopipe_status load_library(const char *path, TVMFFIObject **library);

/* Makes a tensor that shares `data`, which has to stay. `dtype` is TVM's, such as that of bfloat16. */
autopipe_status share_tensor(void *data, DLDataType dtype, int rank, const int64_t *shape, TVMFFIObject **tensor);

/* Makes a tensor with a copy of another one's elements. */
autopipe_status copy_tensor(TVMFFIObject *tensor, TVMFFIObject **copy);

/* Bytes of the elements of a tensor. */
size_t tensor_bytes(const DLTensor *tensor);

autopipe_status make_shape(const int64_t *sizes, int count, TVMFFIObject **shape);

/* Lets parallel loops that the calling thread starts use so many threads, itself included. `*has_all` becomes 0 where
 * they are fewer: this thread had a smaller pool before, which cannot grow. */
autopipe_status use_threads(int threads, int *has_all);

/* Cores that the calling thread may run on. */
int allowed_cores(void);

/* The items of an array; NULL for anything else. */
const TVMFFIAny *array_items(const TVMFFIAny *array, size_t *count);

TVMFFIAny as_argument(TVMFFIObject *object);
void release_object(TVMFFIObject *object);
void release_any(TVMFFIAny *value);

/* The array of a tensor object. */
DLTensor *tensor_of(TVMFFIObject *object);

#endif
