/* A loaded folder: what all handles and instances of a model share, and the instances themselves. */
#ifndef AUTOPIPE_LOADED_H
#define AUTOPIPE_LOADED_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "description.h"
#include "files.h"
#include "tvm.h"

enum { RECENT = 8 };

typedef struct loaded loaded;

/* When a call ends without an answer. */
typedef struct call_limit {
  int64_t milliseconds, deadline; /* nanoseconds of the monotonic clock; INT64_MAX for none */
  const atomic_uint *cancels;     /* how often the handle was cancelled; more often than before the call ends it */
  unsigned cancels_before;
} call_limit;

/* One call: filled by the caller, run by an instance. */
typedef struct job {
  call_limit limit;
  const autopipe_tensor *inputs[MAX_PORTS]; /* by place; NULL where a state is held */
  TVMFFIObject *const *states;              /* by place of the input; NULL for none */
  const autopipe_tensor *outputs[MAX_PORTS]; /* by place; NULL where the caller has no memory for one */
  int is_direct;                             /* whether kernels may write to all of these */
  int64_t sizes[MAX_DIMENSIONS];
  int library;
  TVMFFIObject *results[MAX_PORTS]; /* of the caller when it is done; tensors in memory of their own */
  autopipe_status status;
  char message[1024];
} job;

/* Working memory of one call at a time. A pool of threads belongs to the thread that runs the kernels: that which calls
 * first, or, once another one calls, a thread of the instance. */
typedef struct instance {
  loaded *of;
  int is_busy, has_thread;
  uint64_t owner; /* number of the thread that calls first; 0 for none */
  TVMFFIObject *mains[MAX_LIBRARIES], *machines[MAX_LIBRARIES];
  TVMFFIObject *mains_into[MAX_LIBRARIES]; /* write to outputs of the caller; NULL where a library has none */
  TVMFFIObject *stop_late; /* called by a machine before each kernel of a call that may end early */
  int has_stop[MAX_LIBRARIES];
  TVMFFIAny *arguments[MAX_LIBRARIES]; /* inputs, sizes, weights, outputs of the caller */
  void *scratch[MAX_PORTS];            /* aligned copies of inputs */
  size_t scratch_bytes[MAX_PORTS];
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  job *work, *running;
  int stops;
  pid_t process; /* that has those threads: a fork has not */
} instance;

struct loaded {
  description about;
  mapped_file weights_file;
  void *weights_copy;
  size_t weights_copy_bytes;
  TVMFFIObject **weights; /* as they are stored */
  TVMFFIAny prepared[MAX_LIBRARIES]; /* arrays of weights as the kernels take them, which all instances share */
  TVMFFIObject *libraries[MAX_LIBRARIES];
  int threads, instance_count, users;
  instance *instances;
  int64_t recent[RECENT][MAX_DIMENSIONS]; /* sizes of the latest calls */
  int next_recent, new_sizes;
  size_t resident_floor; /* bytes of the process after memory was given back */
  pthread_mutex_t lock;
  pthread_cond_t freed, turned; /* an instance; the turn of a stream */
};

autopipe_status load_folder(const char *folder, const autopipe_options *options, loaded **out);
void unload(loaded *of);

/* Waits for an instance that is free, and runs the job on it. */
autopipe_status run_job(loaded *of, job *work);

/* Waits until no other call of a stream runs, and begins: `*is_taken` becomes 1 until end_turn. */
autopipe_status take_turn(loaded *of, const call_limit *limit, int *is_taken);
void end_turn(loaded *of, int *is_taken);

/* Lets calls that wait look at their limits. */
void wake_calls(loaded *of);

call_limit make_limit(int64_t milliseconds, const atomic_uint *cancels);

/* AUTOPIPE_OK, or why a call goes no further. */
autopipe_status check_limit(const call_limit *limit);

/* The size of an extent at certain sizes of the dimensions. */
int64_t size_at(const extent *of, const int64_t *sizes);

autopipe_status start_instance(loaded *of, instance *on);
void stop_instance(loaded *of, instance *on);

/* Runs a job on an instance that no other call uses; its status is that of the job. */
void run_on(instance *on, job *work);

#endif
