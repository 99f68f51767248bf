#define _GNU_SOURCE
#include "limit.h"

#include "error.h"

enum { SECOND = 1000000000, MILLISECOND = 1000000 };

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

call_limit make_limit(int64_t milliseconds, const atomic_uint *cancels) {
  call_limit made = {milliseconds, INT64_MAX, cancels, cancels ? atomic_load(cancels) : 0};
  int64_t start = milliseconds < 0 ? 0 : now();
  if (milliseconds >= 0 && milliseconds < (INT64_MAX - start) / MILLISECOND) made.deadline = start + milliseconds * MILLISECOND;
  return made;
}

autopipe_status check_limit(const call_limit *limit) {
  if (limit->cancels && atomic_load(limit->cancels) != limit->cancels_before) return fail(AUTOPIPE_CANCELLED, "the call was cancelled");
  if (limit->deadline == INT64_MAX || now() < limit->deadline) return AUTOPIPE_OK;
  return fail(AUTOPIPE_TIMEOUT, "the call did not end within %lld ms", (long long)limit->milliseconds);
}

struct timespec deadline_time(const call_limit *limit) {
  struct timespec time = {limit->deadline / SECOND, limit->deadline % SECOND};
  return time;
}
