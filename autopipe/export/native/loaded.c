#define _GNU_SOURCE
#include "loaded.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "sha256.h"

enum { ALIGNMENT = 64, LARGE_PAGE = 2 << 20, ASK_FOR_REGISTERS = 0x1023, TILE_DATA = 18, MAX_INSTANCES = 1024, NEW_SIZES = 16 };
static const char WEIGHTS[] = "weights.safetensors", RUNTIME[] = "lib/libtvm_runtime.so";

int64_t size_at(const extent *of, const int64_t *sizes) {
  int64_t size = of->constant;
  for (int i = 0; i < of->count; i++) size += sizes[of->dimensions[i]];
  return size;
}

/* Linux lets a process use AMX after it has asked. */
static int ask_for_tiles(void) {
#ifdef __x86_64__
  return syscall(SYS_arch_prctl, ASK_FOR_REGISTERS, TILE_DATA) == 0;
#else
  return 1;
#endif
}

static autopipe_status check_processor(const description *about) {
  struct utsname here;
  if (uname(&here)) return fail(AUTOPIPE_UNSUPPORTED, "uname: %s", strerror(errno));
  if (strcmp(here.machine, about->machine))
    return fail(AUTOPIPE_UNSUPPORTED, "the model is built for %s, this machine is %s", about->machine, here.machine);
  if (about->missing[0]) return fail(AUTOPIPE_UNSUPPORTED, "this processor lacks %s, which the model was built for", about->missing);
  if (about->uses_tiles && !ask_for_tiles()) return fail(AUTOPIPE_UNSUPPORTED, "this system does not permit AMX");
  return AUTOPIPE_OK;
}

/* Two releases of TVM do not share a process: their symbols have the same names. */
static autopipe_status check_runtime(const char *folder) {
  Dl_info about;
  char own[4096], stated[65], found[65];
  if (!dladdr((void *)TVMFFIFunctionCall, &about)) return fail(AUTOPIPE_UNSUPPORTED, "no TVM runtime is loaded");
  snprintf(own, sizeof own, "%s/lib/libtvm_ffi.so", folder);
  char *here = realpath(own, NULL), *there = realpath(about.dli_fname, NULL);
  int is_own = here && there && !strcmp(here, there);
  free(here), free(there);
  if (is_own) return AUTOPIPE_OK;
  const char *files[] = {"lib/libtvm_ffi.so", RUNTIME};
  for (int i = 0; i < 2; i++) {
    void *symbol = i ? dlsym(RTLD_DEFAULT, "TVMBackendParallelLaunch") : (void *)TVMFFIFunctionCall;
    mapped_file file;
    if (!symbol || !dladdr(symbol, &about)) return fail(AUTOPIPE_UNSUPPORTED, "no TVM runtime is loaded");
    autopipe_status status = stated_digest(folder, files[i], stated);
    if (!status) status = map_file("", about.dli_fname, &file);
    if (status) return status;
    sha256_hex(file.data, file.size, found);
    unmap_file(&file);
    if (strcmp(stated, found))
      return fail(AUTOPIPE_UNSUPPORTED, "%s was built for another TVM runtime than %s, which this process has loaded", folder, about.dli_fname);
  }
  return AUTOPIPE_OK;
}

static autopipe_status copy_weights(loaded *of) {
  size_t bytes = (of->weights_file.size + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE + LARGE_PAGE;
  char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for %zu bytes of weights", of->weights_file.size);
  of->weights_copy = memory, of->weights_copy_bytes = bytes;
  madvise(memory, bytes, MADV_HUGEPAGE);
  char *start = memory + (LARGE_PAGE - (uintptr_t)memory % LARGE_PAGE) % LARGE_PAGE;
  memcpy(start, of->weights_file.data, of->weights_file.size);
  unmap_file(&of->weights_file);
  return AUTOPIPE_OK;
}

static autopipe_status share_weights(loaded *of, const char *base) {
  of->weights = calloc(of->about.weight_count + 1, sizeof *of->weights);
  if (!of->weights) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for a list of weights");
  for (size_t i = 0; i < of->about.weight_count; i++) {
    const weight *one = &of->about.weights[i];
    autopipe_status status = share_tensor((void *)(base + one->offset), to_dl_dtype(one->dtype), one->rank, one->shape, &of->weights[i]);
    if (status) return status;
  }
  return AUTOPIPE_OK;
}

static autopipe_status load_weights(loaded *of, int copies) {
  if (copies && of->weights_file.size) {
    autopipe_status status = copy_weights(of);
    if (status) return status;
  }
  const char *base = of->weights_file.data;
  if (of->weights_copy)
    base = (char *)of->weights_copy + (LARGE_PAGE - (uintptr_t)of->weights_copy % LARGE_PAGE) % LARGE_PAGE;
  return share_weights(of, base);
}

/* Their digests are always compared: loading a library that was cut ends the process. */
static autopipe_status load_libraries(loaded *of, const char *folder) {
  char path[4096];
  for (int i = 0; i < of->about.library_count; i++) {
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, of->about.libraries[i].file) >= sizeof path)
      return fail(AUTOPIPE_INVALID_ARGUMENT, "the path of the folder is too long");
    autopipe_status status = check_digest(folder, of->about.libraries[i].file);
    if (!status) status = load_library(path, &of->libraries[i]);
    if (status) return status;
  }
  return AUTOPIPE_OK;
}

/* Kernels of most libraries do not look at their weights: such a library has a function that does, once. */
static autopipe_status check_weights(loaded *of, instance *on, int place) {
  TVMFFIObject *check = NULL;
  const library *takes = &of->about.libraries[place];
  autopipe_status status = get_function(on->machines[place], "check_weights", &check);
  if (status || !check) return status;
  int first = of->about.input_count + (of->about.dimension_count > 0);
  TVMFFIAny result = {0};
  if (TVMFFIFunctionCall(check, on->arguments[place] + first, (int)takes->weight_count, &result))
    status = fail_with_raised(AUTOPIPE_INVALID_FILE, "the library takes other weights");
  release_any(&result);
  release_object(check);
  return status;
}

static autopipe_status prepare_library(loaded *of, instance *on, int place) {
  const library *takes = &of->about.libraries[place];
  size_t first = (size_t)of->about.input_count + (of->about.dimension_count > 0);
  on->arguments[place] = calloc(first + takes->weight_count + 1, sizeof(TVMFFIAny));
  if (!on->arguments[place]) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for an instance");
  for (size_t i = 0; i < takes->weight_count; i++) on->arguments[place][first + i] = as_argument(of->weights[takes->weights[i]]);
  autopipe_status status = load_machine(of->libraries[place], &on->machines[place]);
  if (!status) status = get_function(on->machines[place], "main", &on->mains[place]);
  if (!status && !on->mains[place]) status = fail(AUTOPIPE_INVALID_FILE, "%s has no main", takes->file);
  return status ? status : check_weights(of, on, place);
}

static size_t bytes_of_input(const loaded *of, int place, const int64_t *sizes) {
  const port *about = &of->about.inputs[place];
  size_t bytes = autopipe_dtype_bytes(about->dtype);
  for (int axis = 0; axis < about->rank; axis++) bytes *= (size_t)size_at(&about->extents[axis], sizes);
  return bytes;
}

/* The address of an input that is aligned: its own, or that of a copy. */
static void *aligned_input(instance *on, int place, const autopipe_tensor *given, size_t bytes) {
  if (given && (uintptr_t)given->data % ALIGNMENT == 0) return given->data;
  if (on->scratch_bytes[place] < bytes || !on->scratch[place]) {
    free(on->scratch[place]);
    size_t room = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    on->scratch[place] = aligned_alloc(ALIGNMENT, room);
    on->scratch_bytes[place] = on->scratch[place] ? room : 0;
    if (!on->scratch[place]) return NULL;
  }
  if (given) memcpy(on->scratch[place], given->data, bytes);
  else memset(on->scratch[place], 0, bytes);
  return on->scratch[place];
}

static autopipe_status fill_inputs(instance *on, const job *work, TVMFFIAny *arguments) {
  loaded *of = on->of;
  for (int i = 0; i < of->about.input_count; i++) {
    const port *about = &of->about.inputs[i];
    int64_t shape[AUTOPIPE_MAX_RANK];
    TVMFFIObject *tensor = work->states[i];
    if (tensor) {
      TVMFFIObjectIncRef(tensor);
    } else {
      void *data = aligned_input(on, i, work->inputs[i], bytes_of_input(of, i, work->sizes));
      if (!data) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for a copy of input %s", about->name);
      for (int axis = 0; axis < about->rank; axis++) shape[axis] = size_at(&about->extents[axis], work->sizes);
      autopipe_status status = share_tensor(data, to_dl_dtype(autopipe_dtype_name(about->dtype)), about->rank, shape, &tensor);
      if (status) return status;
    }
    arguments[i] = as_argument(tensor);
  }
  if (!of->about.dimension_count) return AUTOPIPE_OK;
  int64_t steps[MAX_DIMENSIONS];
  TVMFFIObject *shape;
  for (int i = 0; i < of->about.dimension_count; i++) steps[i] = work->sizes[i] / of->about.dimensions[i].multiple;
  autopipe_status status = make_shape(steps, of->about.dimension_count, &shape);
  if (!status) arguments[of->about.input_count] = as_argument(shape);
  return status;
}

/* Whether a result lies in memory that is not its own: an input of the caller, a copy of one, or a weight. */
static int is_borrowed(const TVMFFIAny *arguments, int count, const void *data) {
  for (int i = 0; i < count; i++)
    if (arguments[i].type_index == kTVMFFITensor && tensor_of(arguments[i].v_obj)->data == data) return 1;
  return 0;
}

static autopipe_status take_result(const instance *on, const job *work, TVMFFIObject *tensor, TVMFFIObject **out) {
  const loaded *of = on->of;
  int count = of->about.input_count + (of->about.dimension_count > 0) + (int)of->about.libraries[work->library].weight_count;
  if (is_borrowed(on->arguments[work->library], count, tensor_of(tensor)->data)) return copy_tensor(tensor, out);
  TVMFFIObjectIncRef(*out = tensor);
  return AUTOPIPE_OK;
}

static autopipe_status take_results(const instance *on, job *work, const TVMFFIAny *result) {
  int count = on->of->about.output_count;
  if (result->type_index == kTVMFFITensor && count == 1) return take_result(on, work, result->v_obj, &work->results[0]);
  const TVMFFISeqCell *list = (const TVMFFISeqCell *)((char *)result->v_obj + sizeof(TVMFFIObject));
  if (result->type_index != kTVMFFIArray || list->size != count) return fail(AUTOPIPE_FAILED, "the compiled model returned something else than its outputs");
  for (int i = 0; i < count; i++) {
    const TVMFFIAny *item = (const TVMFFIAny *)list->data + i;
    if (item->type_index != kTVMFFITensor) return fail(AUTOPIPE_FAILED, "the compiled model returned no tensor for output %d", i);
    autopipe_status status = take_result(on, work, item->v_obj, &work->results[i]);
    if (status) return status;
  }
  return AUTOPIPE_OK;
}

/* Runs in the thread whose pool the kernels use. */
static void execute(instance *on, job *work) {
  loaded *of = on->of;
  TVMFFIAny *arguments = on->arguments[work->library];
  int filled = of->about.input_count + (of->about.dimension_count > 0);
  memset(arguments, 0, (size_t)filled * sizeof *arguments);
  work->status = use_threads(of->threads);
  if (!work->status) work->status = fill_inputs(on, work, arguments);
  if (!work->status) {
    int count = filled + (int)of->about.libraries[work->library].weight_count;
    TVMFFIAny result = {0};
    if (TVMFFIFunctionCall(on->mains[work->library], arguments, count, &result))
      work->status = fail_with_raised(AUTOPIPE_FAILED, "the compiled model failed");
    else
      work->status = take_results(on, work, &result);
    release_any(&result);
  }
  for (int i = 0; i < filled; i++) release_any(&arguments[i]);
  if (work->status) snprintf(work->message, sizeof work->message, "%s", autopipe_last_error());
}

static void *serve(void *of) {
  instance *on = of;
  pthread_mutex_lock(&on->lock);
  while (!on->stops) {
    if (!on->work) {
      pthread_cond_wait(&on->wake, &on->lock);
      continue;
    }
    job *work = on->work;
    pthread_mutex_unlock(&on->lock);
    execute(on, work);
    pthread_mutex_lock(&on->lock);
    on->work = NULL;
    pthread_cond_signal(&on->done);
  }
  pthread_mutex_unlock(&on->lock);
  return NULL;
}

static void hand_over(instance *on, job *work) {
  pthread_mutex_lock(&on->lock);
  on->work = work;
  pthread_cond_signal(&on->wake);
  while (on->work) pthread_cond_wait(&on->done, &on->lock);
  pthread_mutex_unlock(&on->lock);
}

static autopipe_status start_instance(loaded *of, instance *on) {
  on->of = of;
  pthread_mutex_init(&on->lock, NULL);
  pthread_cond_init(&on->wake, NULL);
  pthread_cond_init(&on->done, NULL);
  for (int i = 0; i < of->about.library_count; i++) {
    autopipe_status status = prepare_library(of, on, i);
    if (status) return status;
  }
  if (of->threads == 1) return AUTOPIPE_OK; /* the caller's thread runs it, and no pool starts */
  if (pthread_create(&on->thread, NULL, serve, on)) return fail(AUTOPIPE_OUT_OF_MEMORY, "no thread can be started");
  on->has_thread = 1;
  return AUTOPIPE_OK;
}

static void stop_instance(loaded *of, instance *on) {
  if (!on->of) return;
  if (on->has_thread) {
    pthread_mutex_lock(&on->lock);
    on->stops = 1;
    pthread_cond_signal(&on->wake);
    pthread_mutex_unlock(&on->lock);
    pthread_join(on->thread, NULL);
  }
  for (int i = 0; i < of->about.library_count; i++) {
    release_object(on->mains[i]);
    release_object(on->machines[i]);
    free(on->arguments[i]);
  }
  for (int i = 0; i < of->about.input_count; i++) free(on->scratch[i]);
  pthread_cond_destroy(&on->wake);
  pthread_cond_destroy(&on->done);
  pthread_mutex_destroy(&on->lock);
}

void unload(loaded *of) {
  if (!of) return;
  for (int i = 0; of->instances && i < of->instance_count; i++) stop_instance(of, &of->instances[i]);
  for (size_t i = 0; of->weights && i < of->about.weight_count; i++) release_object(of->weights[i]);
  for (int i = 0; i < of->about.library_count; i++) release_object(of->libraries[i]);
  if (of->weights_copy) munmap(of->weights_copy, of->weights_copy_bytes);
  unmap_file(&of->weights_file);
  free(of->weights);
  free(of->instances);
  free_description(&of->about);
  pthread_cond_destroy(&of->freed);
  pthread_mutex_destroy(&of->lock);
  free(of);
}

static autopipe_status start_instances(loaded *of, const autopipe_options *options) {
  int cores = allowed_cores(), wanted = options->threads ? options->threads : of->about.threads;
  of->threads = wanted < cores ? wanted : cores;
  of->instance_count = options->instances ? options->instances : 1;
  of->instances = calloc((size_t)of->instance_count, sizeof *of->instances);
  if (!of->instances) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for %d instances", of->instance_count);
  for (int i = 0; i < of->instance_count; i++) {
    autopipe_status status = start_instance(of, &of->instances[i]);
    if (status) return status;
  }
  return AUTOPIPE_OK;
}

static autopipe_status load_all(loaded *of, const char *folder, const autopipe_options *options) {
  autopipe_status status = options->verify_digests ? check_digests(folder) : AUTOPIPE_OK;
  if (!status) status = map_file(folder, WEIGHTS, &of->weights_file);
  if (!status) status = read_description(folder, of->weights_file.size, &of->about);
  if (!status) status = check_processor(&of->about);
  if (!status) status = check_runtime(folder);
  if (!status) status = load_weights(of, options->copy_weights);
  if (!status) status = load_libraries(of, folder);
  return status ? status : start_instances(of, options);
}

autopipe_status load_folder(const char *folder, const autopipe_options *options, loaded **out) {
  if (options->threads < 0 || options->instances < 0 || options->instances > MAX_INSTANCES)
    return fail(AUTOPIPE_INVALID_ARGUMENT, "threads and instances: 0 to %d", MAX_INSTANCES);
  loaded *of = calloc(1, sizeof *of);
  if (!of) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for a model");
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&of->freed, &clock);
  pthread_condattr_destroy(&clock);
  pthread_mutex_init(&of->lock, NULL);
  /* TVM's threads look for work so often before they sleep: its 300,000 are a tenth of a second of each core. */
  setenv("TVM_THREAD_POOL_SPIN_COUNT", "5000", 0);
  dlopen("libtvm_ffi.so", RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL); /* whose functions the libraries call */
  dlopen("libtvm_runtime.so", RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  autopipe_status status = load_all(of, folder, options);
  if (status) unload(of);
  else *out = of;
  return status;
}

static instance *free_instance(loaded *of) {
  for (int i = 0; i < of->instance_count; i++)
    if (!of->instances[i].is_busy) return &of->instances[i];
  return NULL;
}

static instance *take_instance(loaded *of, int64_t wait_ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  if (wait_ms > 0) {
    until.tv_sec += (time_t)(wait_ms / 1000);
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  }
  instance *on;
  int late = 0;
  pthread_mutex_lock(&of->lock);
  while (!(on = free_instance(of)) && !late) {
    if (wait_ms < 0) pthread_cond_wait(&of->freed, &of->lock);
    else late = pthread_cond_timedwait(&of->freed, &of->lock, &until) == ETIMEDOUT;
  }
  if (on) on->is_busy = 1;
  pthread_mutex_unlock(&of->lock);
  return on;
}

/* Whether so many new sizes were run that memory kept for former ones should go: the runtime keeps what it allocates for
 * each size. */
static int note_sizes(loaded *of, const int64_t *sizes) {
  size_t bytes = (size_t)of->about.dimension_count * sizeof *sizes;
  for (int i = 0; i < RECENT; i++)
    if (!memcmp(of->recent[i], sizes, bytes)) return 0;
  memcpy(of->recent[of->next_recent++ % RECENT], sizes, bytes);
  of->next_recent %= RECENT;
  of->new_sizes = (of->new_sizes + 1) % NEW_SIZES;
  return of->new_sizes == 0;
}

static void give_memory_back(void) {
  TVMFFIAny result;
  if (!call_global("vm.builtin.memory_manager.clear", NULL, 0, &result)) release_any(&result);
  malloc_trim(0);
}

autopipe_status run_job(loaded *of, job *work, int64_t wait_ms) {
  instance *on = take_instance(of, wait_ms);
  if (!on) return fail(AUTOPIPE_TIMEOUT, "no instance became free within %lld ms", (long long)wait_ms);
  if (on->has_thread) hand_over(on, work);
  else execute(on, work);
  pthread_mutex_lock(&of->lock);
  on->is_busy = 0;
  int is_full = note_sizes(of, work->sizes);
  pthread_cond_signal(&of->freed);
  pthread_mutex_unlock(&of->lock);
  if (is_full) give_memory_back();
  return work->status ? fail(work->status, "%s", work->message) : AUTOPIPE_OK;
}
