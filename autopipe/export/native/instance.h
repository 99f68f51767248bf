/* Instances: working memory, and the thread that runs calls where they take more than one. */
#ifndef AUTOPIPE_INSTANCE_H
#define AUTOPIPE_INSTANCE_H

#include <pthread.h>
#include <sys/types.h>

#include "description.h"
#include "limit.h"
#include "tvm.h"

/* What all instances of a model share. */
typedef struct model_parts {
  description about;
  TVMFFIObject **weights; /* as they are stored */
  TVMFFIAny prepared[MAX_LIBRARIES]; /* arrays of weights as the kernels take them */
  TVMFFIObject *libraries[MAX_LIBRARIES];
  int threads;
} model_parts;

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
  model_parts *of;
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

/* The size of an extent at certain sizes of the dimensions. */
int64_t size_at(const extent *of, const int64_t *sizes);

/* The first instance of a model prepares the weights for all. */
autopipe_status start_instance(model_parts *of, instance *on, int is_first);
void stop_instance(instance *on);

/* Runs a job on an instance that no other call uses; its status is that of the job. */
void run_on(instance *on, job *work);

#endif
