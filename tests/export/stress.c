/* Threads that open, call, cancel, reset and close handles at random, each of which others use and close meanwhile.
 * Prints how many calls had an answer, and returns 1 if a status is none that such a call may have. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "autopipe.h"

enum { HANDLES = 8, THREADS = 6, STATUSES = 9 };
static _Atomic autopipe_model handles[HANDLES];
static atomic_long counts[STATUSES];
static const char *folder;
static time_t end;

static autopipe_status open_one(unsigned *random, _Atomic autopipe_model *place) {
  autopipe_options options = {sizeof options, 1 + rand_r(random) % 2, 2, 0, rand_r(random) % 2};
  autopipe_state state = {"data/x", "scores"};
  autopipe_model made;
  int is_stream = rand_r(random) % 2;
  autopipe_status status = is_stream ? autopipe_open_stream(*place, &state, 1, &made) : autopipe_open(folder, &options, &made);
  if (!status) autopipe_close(atomic_exchange(&handles[rand_r(random) % HANDLES], made));
  return status;
}

static autopipe_status run_one(unsigned *random, autopipe_model model) {
  float x[32] __attribute__((aligned(64))) = {0}, scores[32];
  int64_t ids[4] __attribute__((aligned(64))) = {0};
  int is_stream = rand_r(random) % 2; /* which has no input data/x: another reason to be refused */
  autopipe_tensor inputs[] = {{.name = "ids", .data = ids, .bytes = sizeof ids}, {.name = "data/x", .data = x, .bytes = sizeof x}};
  autopipe_tensor outputs[] = {{.name = "best"}, {.name = "scores", .data = scores, .bytes = sizeof scores}};
  autopipe_status status = autopipe_run(model, inputs, 2 - is_stream, outputs, 2 - is_stream, rand_r(random) % 4 - 2);
  autopipe_release(&outputs[0]);
  return status;
}

static void *act(void *seed) {
  unsigned random = *(unsigned *)seed;
  while (time(NULL) < end) {
    _Atomic autopipe_model *place = &handles[rand_r(&random) % HANDLES];
    autopipe_status status;
    size_t count;
    switch (rand_r(&random) % 10) {
      case 0: status = open_one(&random, place); break;
      case 1: status = autopipe_close(*place); break;
      case 2: status = autopipe_cancel(*place); break;
      case 3: status = autopipe_reset(*place); break;
      case 4: status = autopipe_input_count(*place, &count); break;
      default: status = run_one(&random, *place);
    }
    counts[status]++;
  }
  return NULL;
}

int main(int count, char **words) {
  pthread_t threads[THREADS];
  unsigned seeds[THREADS];
  folder = words[1];
  end = time(NULL) + atoi(words[count - 1]);
  for (unsigned i = 0; i < THREADS; i++) seeds[i] = i + 1, pthread_create(&threads[i], NULL, act, &seeds[i]);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  printf("%ld\n", counts[AUTOPIPE_OK]);
  return counts[AUTOPIPE_INVALID_FILE] || counts[AUTOPIPE_UNSUPPORTED] || counts[AUTOPIPE_OUT_OF_MEMORY] || counts[AUTOPIPE_FAILED];
}
