#define _GNU_SOURCE
#include "loaded.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "error.h"

enum { ALIGNMENT = 64, LARGE_PAGE = 2 << 20, ASK_FOR_REGISTERS = 0x1023, TILE_DATA = 18, MAX_INSTANCES = 1024, NEW_SIZES = 16, MOST_KEPT = 64 << 20 };
static const char WEIGHTS[] = "weights.safetensors";

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
  of->parts.weights = calloc(of->parts.about.weight_count + 1, sizeof *of->parts.weights);
  if (!of->parts.weights) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for a list of weights");
  for (size_t i = 0; i < of->parts.about.weight_count; i++) {
    const weight *one = &of->parts.about.weights[i];
    autopipe_status status = share_tensor((void *)(base + one->offset), one->dtype, one->rank, one->shape, &of->parts.weights[i]);
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

static autopipe_status load_libraries(loaded *of, const char *folder) {
  char path[4096];
  autopipe_status status = check_libraries(folder);
  for (int i = 0; i < of->parts.about.library_count && !status; i++) {
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, of->parts.about.libraries[i].file) >= sizeof path)
      return fail(AUTOPIPE_INVALID_ARGUMENT, "the path of the folder is too long");
    status = check_library(folder, of->parts.about.libraries[i].file);
    if (!status) status = load_library(path, &of->parts.libraries[i]);
  }
  return status;
}

void unload(loaded *of) {
  if (!of) return;
  for (int i = 0; of->instances && i < of->instance_count; i++) stop_instance(&of->instances[i]);
  for (int i = 0; i < of->parts.about.library_count; i++) release_any(&of->parts.prepared[i]);
  for (size_t i = 0; of->parts.weights && i < of->parts.about.weight_count; i++) release_object(of->parts.weights[i]);
  for (int i = 0; i < of->parts.about.library_count; i++) release_object(of->parts.libraries[i]);
  if (of->weights_copy) munmap(of->weights_copy, of->weights_copy_bytes);
  unmap_file(&of->weights_file);
  free(of->parts.weights);
  free(of->instances);
  free_description(&of->parts.about);
  pthread_cond_destroy(&of->freed);
  pthread_cond_destroy(&of->turned);
  pthread_mutex_destroy(&of->lock);
  free(of);
}

static autopipe_status start_instances(loaded *of, const autopipe_options *options) {
  of->instance_count = options->instances ? options->instances : 1;
  int cores = allowed_cores(), share = options->threads ? cores : cores / of->instance_count;
  int wanted = options->threads ? options->threads : of->parts.about.threads;
  of->parts.threads = wanted < share ? wanted : share > 1 ? share : 1;
  of->instances = calloc((size_t)of->instance_count, sizeof *of->instances);
  if (!of->instances) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for %d instances", of->instance_count);
  for (int i = 0; i < of->instance_count; i++) {
    autopipe_status status = start_instance(&of->parts, &of->instances[i], i == 0);
    if (status) return status;
  }
  return AUTOPIPE_OK;
}

static pthread_mutex_t environment = PTHREAD_MUTEX_INITIALIZER;

/* Kernels call OpenBLAS from TVM's threads; when it is loaded, it would start one of its own for each core. */
static autopipe_status load_libraries_alone(loaded *of, const char *folder) {
  static const char THREADS[] = "OPENBLAS_NUM_THREADS";
  pthread_mutex_lock(&environment);
  const char *set = getenv(THREADS);
  char *before = set ? strdup(set) : NULL;
  setenv(THREADS, "1", 1);
  autopipe_status status = load_libraries(of, folder);
  if (before) setenv(THREADS, before, 1);
  else unsetenv(THREADS);
  pthread_mutex_unlock(&environment);
  free(before);
  return status;
}

/* Reads the last description whose processor this is. */
static autopipe_status choose_description(loaded *of, const char *folder) {
  autopipe_status status = AUTOPIPE_UNSUPPORTED;
  for (int place = MAX_VARIANTS; place >= 0 && status == AUTOPIPE_UNSUPPORTED; place--) {
    if (place && !has_description(folder, place)) continue;
    free_description(&of->parts.about);
    status = read_description(folder, place, of->weights_file.size, &of->parts.about);
    if (!status) status = check_processor(&of->parts.about);
  }
  return status;
}

static autopipe_status load_all(loaded *of, const char *folder, const autopipe_options *options) {
  autopipe_status status = options->verify_digests ? check_digests(folder) : AUTOPIPE_OK;
  if (!status) status = map_file(folder, WEIGHTS, &of->weights_file);
  if (!status) status = choose_description(of, folder);
  if (!status) status = load_runtime(folder);
  if (!status) status = load_weights(of, options->copy_weights);
  if (!status) status = load_libraries_alone(of, folder);
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
  pthread_cond_init(&of->turned, &clock);
  pthread_condattr_destroy(&clock);
  pthread_mutex_init(&of->lock, NULL);
  /* TVM's threads look for work so often before they sleep: its 300,000 are a tenth of a second of each core. */
  pthread_mutex_lock(&environment);
  setenv("TVM_THREAD_POOL_SPIN_COUNT", "5000", 0);
  pthread_mutex_unlock(&environment);
  autopipe_status status = load_all(of, folder, options);
  if (status) unload(of);
  else *out = of;
  return status;
}

/* Waits once, with the lock held, where the limit allows. */
static autopipe_status wait_for(loaded *of, pthread_cond_t *event, const call_limit *limit) {
  autopipe_status status = check_limit(limit);
  struct timespec until = deadline_time(limit);
  if (status) return status;
  if (limit->deadline == INT64_MAX) pthread_cond_wait(event, &of->lock);
  else pthread_cond_timedwait(event, &of->lock, &until);
  return AUTOPIPE_OK;
}

autopipe_status take_turn(loaded *of, const call_limit *limit, int *is_taken) {
  autopipe_status status = AUTOPIPE_OK;
  pthread_mutex_lock(&of->lock);
  while (*is_taken && !status) status = wait_for(of, &of->turned, limit);
  if (!status) *is_taken = 1;
  pthread_mutex_unlock(&of->lock);
  return status;
}

void end_turn(loaded *of, int *is_taken) {
  pthread_mutex_lock(&of->lock);
  *is_taken = 0;
  pthread_cond_broadcast(&of->turned);
  pthread_mutex_unlock(&of->lock);
}

void wake_calls(loaded *of) {
  pthread_mutex_lock(&of->lock);
  pthread_cond_broadcast(&of->freed);
  pthread_cond_broadcast(&of->turned);
  pthread_mutex_unlock(&of->lock);
}

static instance *free_instance(loaded *of) {
  for (int i = 0; i < of->instance_count; i++)
    if (!of->instances[i].is_busy) return &of->instances[i];
  return NULL;
}

static autopipe_status take_instance(loaded *of, const call_limit *limit, instance **on) {
  autopipe_status status = AUTOPIPE_OK;
  pthread_mutex_lock(&of->lock);
  while (!(*on = free_instance(of)) && !status) status = wait_for(of, &of->freed, limit);
  if (*on) (*on)->is_busy = 1, status = AUTOPIPE_OK;
  pthread_mutex_unlock(&of->lock);
  return status;
}

/* Whether a call is at sizes that no call was at lately. */
static int note_sizes(loaded *of, const int64_t *sizes) {
  size_t bytes = (size_t)of->parts.about.dimension_count * sizeof *sizes;
  for (int i = 0; i < RECENT; i++)
    if (!memcmp(of->recent[i], sizes, bytes)) return 0;
  memcpy(of->recent[of->next_recent++ % RECENT], sizes, bytes);
  of->next_recent %= RECENT;
  return 1;
}

/* Bytes of this process that are in memory; 0 where the system does not tell. */
static size_t resident_bytes(void) {
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file && fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The runtime keeps what it allocates for each size: it goes after some new ones, or where it is much. Called with the
 * lock held. */
static void give_memory_back(loaded *of) {
  if (++of->new_sizes < NEW_SIZES && resident_bytes() < of->resident_floor + MOST_KEPT) return;
  TVMFFIAny result;
  if (!call_global("vm.builtin.memory_manager.clear", NULL, 0, &result)) release_any(&result);
  malloc_trim(0);
  of->new_sizes = 0, of->resident_floor = resident_bytes();
}

autopipe_status run_job(loaded *of, job *work) {
  instance *on;
  autopipe_status status = take_instance(of, &work->limit, &on);
  if (status) return status;
  pthread_mutex_lock(&of->lock);
  if (of->parts.about.dimension_count && note_sizes(of, work->sizes)) give_memory_back(of);
  pthread_mutex_unlock(&of->lock);
  run_on(on, work);
  pthread_mutex_lock(&of->lock);
  on->is_busy = 0;
  pthread_cond_signal(&of->freed);
  pthread_mutex_unlock(&of->lock);
  return work->status ? fail(work->status, "%s", work->message) : AUTOPIPE_OK;
}
