/* A loaded folder: the parts of a model, its instances, and the calls that wait for one. */
#ifndef AUTOPIPE_LOADED_H
#define AUTOPIPE_LOADED_H

#include "files.h"
#include "instance.h"

enum { RECENT = 8 };

typedef struct loaded {
  model_parts parts;
  mapped_file weights_file;
  void *weights_copy;
  size_t weights_copy_bytes;
  int instance_count, users;
  instance *instances;
  int64_t recent[RECENT][MAX_DIMENSIONS]; /* sizes of the latest calls */
  int next_recent, new_sizes;
  size_t resident_floor; /* bytes of the process after memory was given back */
  pthread_mutex_t lock;
  pthread_cond_t freed, turned; /* an instance; the turn of a stream */
} loaded;

autopipe_status load_folder(const char *folder, const autopipe_options *options, loaded **out);
void unload(loaded *of);

/* Waits for an instance that is free, and runs the job on it. */
autopipe_status run_job(loaded *of, job *work);

/* Waits until no other call of a stream runs, and begins: `*is_taken` becomes 1 until end_turn. */
autopipe_status take_turn(loaded *of, const call_limit *limit, int *is_taken);
void end_turn(loaded *of, int *is_taken);

/* Lets calls that wait look at their limits. */
void wake_calls(loaded *of);

#endif
