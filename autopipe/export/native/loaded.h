/* A loaded folder: what all handles and instances of a model share, and the instances themselves. */
#ifndef AUTOPIPE_LOADED_H
#define AUTOPIPE_LOADED_H

#include <pthread.h>

#include "description.h"
#include "files.h"
#include "tvm.h"

enum { RECENT = 8 };

typedef struct loaded loaded;

/* One call: filled by the caller, run by an instance. */
typedef struct job {
  const autopipe_tensor *inputs[MAX_PORTS]; /* by place; NULL where a state is held */
  TVMFFIObject *states[MAX_PORTS];          /* by place of the input; NULL for none */
  int64_t sizes[MAX_DIMENSIONS];
  int library;
  TVMFFIObject *results[MAX_PORTS]; /* of the caller when it is done; tensors in memory of their own */
  autopipe_status status;
  char message[1024];
} job;

/* Working memory of one call at a time, and the thread that owns its pool where it has more than one. */
typedef struct instance {
  loaded *of;
  int is_busy, has_thread;
  TVMFFIObject *mains[MAX_LIBRARIES], *machines[MAX_LIBRARIES];
  TVMFFIAny *arguments[MAX_LIBRARIES]; /* inputs, sizes, weights */
  void *scratch[MAX_PORTS];            /* aligned copies of inputs */
  size_t scratch_bytes[MAX_PORTS];
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  job *work;
  int stops;
} instance;

struct loaded {
  description about;
  mapped_file weights_file;
  void *weights_copy;
  size_t weights_copy_bytes;
  TVMFFIObject **weights;
  TVMFFIObject *libraries[MAX_LIBRARIES];
  int threads, instance_count, users;
  instance *instances;
  int64_t recent[RECENT][MAX_DIMENSIONS]; /* sizes of the latest calls */
  int next_recent, new_sizes;
  pthread_mutex_t lock;
  pthread_cond_t freed;
};

autopipe_status load_folder(const char *folder, const autopipe_options *options, loaded **out);
void unload(loaded *of);

/* Waits for an instance that is free, and runs the job on it. */
autopipe_status run_job(loaded *of, job *work, int64_t wait_ms);

/* The size of an extent at certain sizes of the dimensions. */
int64_t size_at(const extent *of, const int64_t *sizes);

#endif
