/* When a call ends without an answer: late, or cancelled. */
#ifndef AUTOPIPE_LIMIT_H
#define AUTOPIPE_LIMIT_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "autopipe.h"

typedef struct call_limit {
  int64_t milliseconds, deadline; /* nanoseconds of the monotonic clock; INT64_MAX for none */
  const atomic_uint *cancels;     /* how often the handle was cancelled; more often than before the call ends it */
  unsigned cancels_before;
} call_limit;

call_limit make_limit(int64_t milliseconds, const atomic_uint *cancels);

/* AUTOPIPE_OK, or why a call goes no further. */
autopipe_status check_limit(const call_limit *limit);

/* The deadline of a limit that has one, by the monotonic clock. */
struct timespec deadline_time(const call_limit *limit);

#endif
