/* TVM's runtime: loaded when the first folder is opened, so that one that is missing or damaged is an error of that. */
#ifndef AUTOPIPE_RUNTIME_H
#define AUTOPIPE_RUNTIME_H

#include <tvm/ffi/c_api.h>

#include "autopipe.h"

#define TVM_FUNCTIONS(APPLY) \
  APPLY(ObjectIncRef) APPLY(ObjectDecRef) APPLY(FunctionCreate) APPLY(FunctionCall) APPLY(FunctionGetGlobal) \
  APPLY(TensorFromDLPack) APPLY(ErrorMoveFromRaised) APPLY(ErrorSetRaisedFromCStr)

/* TVMFFIObjectIncRef as `tvm.ObjectIncRef`, and so on. */
extern struct tvm_functions {
#define DECLARE(name) __typeof__(TVMFFI##name) *name;
  TVM_FUNCTIONS(DECLARE)
#undef DECLARE
  int (*ParallelLaunch)(int (*task)(int number, void *group, void *data), void *data, int count); /* TVMBackendParallelLaunch */
} tvm;

/* Loads the runtime of a folder, unless the process has one: that has to be the same. */
autopipe_status load_runtime(const char *folder);

#endif
