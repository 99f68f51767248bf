#define _GNU_SOURCE
#include "tvm.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

enum { CPU = 1, POOLED = 2, ALIGNMENT = 64, SHARE_ALL_CORES = -3, MAX_CORES = 1024 };

TVMFFIAny as_argument(TVMFFIObject *object) {
  TVMFFIAny any = {0};
  any.type_index = object->type_index;
  any.v_obj = object;
  return any;
}

static TVMFFIAny as_int(int64_t value) {
  TVMFFIAny any = {0};
  any.type_index = kTVMFFIInt;
  any.v_int64 = value;
  return any;
}

static TVMFFIAny as_text(const char *text) {
  TVMFFIAny any = {0};
  any.type_index = kTVMFFIRawStr;
  any.v_c_str = text;
  return any;
}

void release_object(TVMFFIObject *object) {
  if (object) tvm.ObjectDecRef(object);
}

void release_any(TVMFFIAny *value) {
  if (value->type_index >= kTVMFFIStaticObjectBegin) tvm.ObjectDecRef(value->v_obj);
  *value = (TVMFFIAny){0};
}

const TVMFFIAny *array_items(const TVMFFIAny *array, size_t *count) {
  if (array->type_index != kTVMFFIArray) return NULL;
  const TVMFFISeqCell *list = (const TVMFFISeqCell *)((char *)array->v_obj + sizeof(TVMFFIObject));
  *count = (size_t)list->size;
  static const TVMFFIAny NO_ITEMS[1];
  return *count ? (const TVMFFIAny *)list->data : NO_ITEMS;
}

DLTensor *tensor_of(TVMFFIObject *object) { return (DLTensor *)((char *)object + sizeof(TVMFFIObject)); }

autopipe_status fail_with_raised(autopipe_status status, const char *what) {
  TVMFFIObjectHandle raised = NULL;
  tvm.ErrorMoveFromRaised(&raised);
  if (!raised) return fail(status, "%s: the runtime states no reason", what);
  const TVMFFIErrorCell *cell = (const TVMFFIErrorCell *)((char *)raised + sizeof(TVMFFIObject));
  fail(status, "%s: %.*s", what, (int)(cell->message.size > 600 ? 600 : cell->message.size), cell->message.data);
  tvm.ObjectDecRef(raised);
  return status;
}

void drop_raised(void) {
  TVMFFIObjectHandle raised = NULL;
  tvm.ErrorMoveFromRaised(&raised);
  release_object(raised);
}

static autopipe_status call(TVMFFIObject *function, TVMFFIAny *arguments, int count, TVMFFIAny *result, const char *name) {
  *result = (TVMFFIAny){0};
  if (tvm.FunctionCall(function, arguments, count, result)) return fail_with_raised(AUTOPIPE_FAILED, name);
  return AUTOPIPE_OK;
}

autopipe_status call_global(const char *name, TVMFFIAny *arguments, int count, TVMFFIAny *result) {
  TVMFFIByteArray text = {name, strlen(name)};
  TVMFFIObjectHandle function = NULL;
  if (tvm.FunctionGetGlobal(&text, &function)) return fail_with_raised(AUTOPIPE_UNSUPPORTED, name);
  if (!function) return fail(AUTOPIPE_UNSUPPORTED, "the TVM runtime has no %s", name);
  autopipe_status status = call(function, arguments, count, result, name);
  tvm.ObjectDecRef(function);
  return status;
}

autopipe_status get_function(TVMFFIObject *module, const char *name, TVMFFIObject **function) {
  TVMFFIAny arguments[] = {as_argument(module), as_text(name), {0}}, result;
  arguments[2].type_index = kTVMFFIBool;
  autopipe_status status = call_global("ffi.ModuleGetFunction", arguments, 3, &result);
  *function = NULL;
  if (!status && result.type_index == kTVMFFIFunction) *function = result.v_obj;
  else if (!status) release_any(&result);
  return status;
}

static autopipe_status take_module(TVMFFIAny *result, TVMFFIObject **module) {
  if (result->type_index == kTVMFFIModule) return *module = result->v_obj, AUTOPIPE_OK;
  release_any(result);
  return fail(AUTOPIPE_INVALID_FILE, "a library is not one of a compiled model");
}

autopipe_status load_library(const char *path, TVMFFIObject **library) {
  TVMFFIAny argument = as_text(path), result;
  autopipe_status status = call_global("ffi.ModuleLoadFromFile", &argument, 1, &result);
  if (status) return fail(AUTOPIPE_INVALID_FILE, "%s: %s", path, strdupa(autopipe_last_error()));
  return take_module(&result, library);
}

autopipe_status load_machine(TVMFFIObject *library, TVMFFIObject **machine) {
  TVMFFIObject *load = NULL, *start = NULL;
  TVMFFIAny result, devices[] = {as_int(CPU), as_int(0), as_int(POOLED)};
  *machine = NULL;
  autopipe_status status = get_function(library, "vm_load_executable", &load);
  if (!status && !load) status = fail(AUTOPIPE_INVALID_FILE, "a library is not one of a compiled model");
  if (!status) status = call(load, NULL, 0, &result, "vm_load_executable");
  if (!status) status = take_module(&result, machine);
  if (!status) status = get_function(*machine, "vm_initialization", &start);
  if (!status && !start) status = fail(AUTOPIPE_INVALID_FILE, "a library has no vm_initialization");
  if (!status) status = call(start, devices, 3, &result, "vm_initialization");
  if (!status) release_any(&result);
  release_object(load);
  release_object(start);
  return status;
}

autopipe_status set_instrument(TVMFFIObject *machine, TVMFFIObject *function) {
  TVMFFIObject *set = NULL;
  /* The name of a function is that of one which makes the instrument: no instrument here. */
  TVMFFIAny argument = function ? as_argument(function) : as_text("vm.builtin.null_value"), result;
  autopipe_status status = get_function(machine, "set_instrument", &set);
  if (!status && !set) status = fail(AUTOPIPE_UNSUPPORTED, "the TVM runtime has no set_instrument");
  if (!status) status = call(set, &argument, 1, &result, "set_instrument");
  if (!status) release_any(&result);
  release_object(set);
  return status;
}

typedef struct shared_tensor {
  DLManagedTensor managed;
  int64_t shape[AUTOPIPE_MAX_RANK];
} shared_tensor;

static void free_shared(DLManagedTensor *tensor) {
  free(tensor->manager_ctx); /* memory of its own, or NULL */
  free(tensor);
}

static autopipe_status make_tensor(void *data, void *owned, DLDataType dtype, int rank, const int64_t *shape, TVMFFIObject **tensor) {
  shared_tensor *shared = calloc(1, sizeof *shared);
  if (!shared) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for a tensor");
  memcpy(shared->shape, shape, (size_t)rank * sizeof *shape);
  DLTensor *to = &shared->managed.dl_tensor;
  to->data = data;
  to->device.device_type = kDLCPU;
  to->ndim = rank;
  to->dtype = dtype;
  to->shape = shared->shape;
  shared->managed.manager_ctx = owned;
  shared->managed.deleter = free_shared;
  TVMFFIObjectHandle made;
  if (tvm.TensorFromDLPack(&shared->managed, 0, 0, &made)) {
    free(shared);
    return fail_with_raised(AUTOPIPE_FAILED, "TVMFFITensorFromDLPack");
  }
  *tensor = made;
  return AUTOPIPE_OK;
}

autopipe_status share_tensor(void *data, DLDataType dtype, int rank, const int64_t *shape, TVMFFIObject **tensor) {
  return make_tensor(data, NULL, dtype, rank, shape, tensor);
}

size_t tensor_bytes(const DLTensor *tensor) {
  size_t bytes = (tensor->dtype.bits + 7u) / 8;
  for (int axis = 0; axis < tensor->ndim; axis++) bytes *= (size_t)tensor->shape[axis];
  return bytes;
}

autopipe_status copy_tensor(TVMFFIObject *tensor, TVMFFIObject **copy) {
  const DLTensor *from = tensor_of(tensor);
  size_t bytes = tensor_bytes(from);
  void *memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
  if (!memory) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for a copy of %zu bytes", bytes);
  if (bytes) memcpy(memory, (char *)from->data + from->byte_offset, bytes);
  autopipe_status status = make_tensor(memory, memory, from->dtype, from->ndim, from->shape, copy);
  if (status) free(memory);
  return status;
}

autopipe_status make_shape(const int64_t *sizes, int count, TVMFFIObject **shape) {
  TVMFFIAny arguments[64], result;
  if (count > 64) return fail(AUTOPIPE_UNSUPPORTED, "more than 64 sizes");
  for (int i = 0; i < count; i++) arguments[i] = as_int(sizes[i]);
  autopipe_status status = call_global("ffi.Shape", arguments, count, &result);
  if (!status) *shape = result.v_obj;
  return status;
}

int allowed_cores(void) {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) ? 1 : CPU_COUNT(&allowed);
}

static autopipe_status configure_pool(int threads, const TVMFFIAny *cores, int count) {
  TVMFFIAny list, result;
  autopipe_status status = call_global("ffi.Array", (TVMFFIAny *)cores, count, &list);
  if (status) return status;
  TVMFFIAny arguments[] = {as_int(SHARE_ALL_CORES), as_int(threads), list};
  status = call_global("runtime.config_threadpool", arguments, 3, &result);
  release_any(&list);
  return status;
}

static int do_nothing(int number, void *group, void *data) {
  (void)number, (void)group, (void)data;
  return 0;
}

/* Waits until each thread of the pool has run a task. One that still starts holds a lock of the runtime (it initializes a
 * static variable), which a process forked meanwhile would never see released. */
static autopipe_status wait_for_pool(void) {
  return tvm.ParallelLaunch(do_nothing, NULL, 0) ? fail_with_raised(AUTOPIPE_FAILED, "the threads of the runtime") : AUTOPIPE_OK;
}

/* By itself TVM uses half of the cores on x86-64, and cuts a larger number of threads to that; only a list of cores
 * raises it. A pool is made of as many threads as cores are named at first. Then all allowed cores are, so that no
 * thread is tied to one that another process may use. */
autopipe_status use_threads(int threads, int *has_all) {
  static _Thread_local int configured, used;
  *has_all = used == threads;
  if (configured == threads) return AUTOPIPE_OK;
  cpu_set_t allowed;
  char names[MAX_CORES][8];
  TVMFFIAny cores[MAX_CORES];
  int count = 0;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed)) CPU_SET(0, &allowed);
  for (int core = 0; core < MAX_CORES && core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &allowed)) continue;
    snprintf(names[count], sizeof names[count], "%d", core);
    cores[count] = as_text(names[count]);
    count++;
  }
  autopipe_status status = configured ? AUTOPIPE_OK : configure_pool(threads, cores, threads < count ? threads : count);
  TVMFFIAny result;
  if (!status) status = configure_pool(threads, cores, count);
  if (!status) status = wait_for_pool();
  if (!status) status = call_global("runtime.NumThreads", NULL, 0, &result);
  if (status) return status;
  configured = threads, used = (int)result.v_int64;
  *has_all = used == threads;
  return status;
}
