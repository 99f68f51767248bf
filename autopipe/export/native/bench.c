/* `run --bench`: latency and throughput of callers that call one after another, each in a thread of its own. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

enum { MAX_CALLS = 1 << 20, ALIGNMENT = 64 };

typedef struct caller {
  autopipe_model model;
  const arrays *inputs;
  double until, *times; /* seconds */
  size_t calls;
  autopipe_status status;
  char reason[1024];
} caller;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The number at a place of "16,64,256", whose last one stays; -1 where the text is no such list. */
static int64_t number_at(const char *text, int place) {
  for (int at = 0;; at++) {
    char *end;
    int64_t number = strtoll(text, &end, 10);
    if (end == text || (*end && *end != ',')) return -1;
    if (at == place || !*end) return number;
    text = end + 1;
  }
}

static int count_numbers(const char *size) {
  int count = 1;
  for (const char *c = strrchr(size, '='); c && (c = strchr(c, ',')); c++) count++;
  return count;
}

/* The size that is asked for a dimension of an input: --size NAME:AXIS=N or NAME=N for its first dynamic one. */
static int64_t asked_size(const request *asked, const autopipe_port *port, int axis, int *seen) {
  int first = !(*seen)++;
  for (int i = 0; i < asked->size_count; i++) {
    const char *text = asked->sizes[i], *equals = strrchr(text, '=');
    size_t length = strlen(port->name);
    if (!equals || strncmp(text, port->name, length)) continue;
    int is_this = text[length] == ':' ? atoi(text + length + 1) == axis : text + length == equals && first;
    if (is_this) return number_at(equals + 1, asked->turn);
  }
  return port->maximum[axis];
}

static int make_zeros(const request *asked, const autopipe_port *port, autopipe_tensor *out) {
  int seen = 0;
  *out = (autopipe_tensor){.name = port->name, .dtype = port->dtype, .rank = port->rank};
  out->bytes = autopipe_dtype_bytes(port->dtype);
  for (int axis = 0; axis < port->rank; axis++) {
    out->shape[axis] = port->shape[axis] < 0 ? asked_size(asked, port, axis, &seen) : port->shape[axis];
    if (out->shape[axis] < 0 || __builtin_mul_overflow(out->bytes, (size_t)out->shape[axis], &out->bytes)) return 0;
  }
  out->data = aligned_alloc(ALIGNMENT, (out->bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
  if (out->data) memset(out->data, 0, out->bytes);
  return out->data != NULL;
}

/* Whether a size is a list of numbers for a dynamic dimension of the model. */
static int is_size(autopipe_model model, size_t count, const char *text) {
  autopipe_port port;
  const char *equals = strrchr(text, '=');
  if (!equals || number_at(equals + 1, INT_MAX) < 0) return 0;
  for (size_t i = 0; i < count && !autopipe_input(model, i, &port); i++) {
    size_t length = strlen(port.name);
    if (strncmp(text, port.name, length) || (text + length != equals && text[length] != ':')) continue;
    for (int axis = 0; axis < port.rank; axis++)
      if (port.shape[axis] < 0 && (text + length == equals || atoi(text + length + 1) == axis)) return 1;
  }
  return 0;
}

int make_inputs(autopipe_model model, const request *asked, arrays *out) {
  int code = read_inputs(model, asked, out);
  size_t count;
  if (code) return code;
  autopipe_status status = autopipe_input_count(model, &count);
  for (int i = 0; i < asked->size_count && !status; i++)
    if (!is_size(model, count, asked->sizes[i]))
      return complain(AUTOPIPE_INVALID_ARGUMENT, "--size %s: write INPUT=N,... or INPUT:AXIS=N,... for a dynamic dimension, which --describe lists", asked->sizes[i]);
  for (size_t i = 0; i < count && !status; i++) {
    autopipe_port port;
    if ((status = autopipe_input(model, i, &port))) break;
    int is_given = 0;
    for (size_t k = 0; k < out->count; k++) is_given |= !strcmp(out->items[k].name, port.name);
    if (is_given) continue;
    if (!make_zeros(asked, &port, &out->items[out->count])) return complain(AUTOPIPE_INVALID_ARGUMENT, "input %s: no memory, or no such size", port.name);
    out->count++;
  }
  return status ? complain(status, "%s", autopipe_last_error()) : 0;
}

static void *call(void *of) {
  caller *from = of;
  arrays *outputs = calloc(1, sizeof *outputs);
  if (!outputs || list_outputs(from->model, outputs)) return from->status = AUTOPIPE_OUT_OF_MEMORY, NULL;
  for (double start = now(); start < from->until && from->calls < MAX_CALLS;) {
    from->status = autopipe_run(from->model, from->inputs->items, from->inputs->count, outputs->items, outputs->count, AUTOPIPE_NO_LIMIT);
    if (from->status) {
      snprintf(from->reason, sizeof from->reason, "%s", autopipe_last_error());
      break;
    }
    for (size_t i = 0; i < outputs->count; i++) autopipe_release(&outputs->items[i]);
    double end = now();
    from->times[from->calls++] = end - start;
    start = end;
  }
  free(outputs);
  return NULL;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double resident_mib(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file && fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

/* Sizes as they were asked for, each with its number of this turn. */
static void print_sizes(const request *asked) {
  for (int i = 0; i < asked->size_count; i++) {
    const char *text = asked->sizes[i], *equals = strrchr(text, '=');
    if (i) fputs(", ", stdout);
    if (asked->prints_json) putchar('"');
    for (const char *c = text; c < equals; c++) {
      if (asked->prints_json && (*c == '"' || *c == '\\')) putchar('\\');
      putchar((unsigned char)*c < ' ' ? '?' : *c);
    }
    printf(asked->prints_json ? "\": %lld" : "=%lld", (long long)number_at(equals + 1, asked->turn));
  }
}

static void print_times(autopipe_model model, const request *asked, double *times, size_t count, double seconds) {
  int threads = 0, instances = 0;
  autopipe_concurrency(model, &threads, &instances);
  qsort(times, count, sizeof *times, by_size);
  const double parts[] = {0, 0.5, 0.9, 0.99, 1};
  double found[5], sum = 0;
  for (int i = 0; i < 5; i++) found[i] = 1e3 * times[(size_t)(parts[i] * (double)(count - 1) + 0.5)];
  for (size_t i = 0; i < count; i++) sum += 1e3 * times[i];
  if (asked->prints_json) fputs("{\"sizes\": {", stdout);
  print_sizes(asked);
  if (asked->size_count && !asked->prints_json) fputs(": ", stdout);
  const char *format = asked->prints_json
      ? "}, \"calls\": %zu, \"seconds\": %.3f, \"calls_per_second\": %.2f, \"threads\": %d, \"instances\": %d, \"callers\": %d, \"milliseconds\": {\"minimum\": %.4f, \"median\": %.4f, \"p90\": %.4f, \"p99\": %.4f, \"maximum\": %.4f, \"mean\": %.4f}, \"resident_mib\": %.1f}\n"
      : "%zu calls in %.2f s: %.1f a second (%d threads, %d instances, %d callers)\nlatency in ms: minimum %.3f, median %.3f, p90 %.3f, p99 %.3f, maximum %.3f, mean %.3f\nresident memory: %.1f MiB\n";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  printf(format, count, seconds, (double)count / seconds, threads, instances, asked->callers, found[0], found[1], found[2], found[3], found[4], sum / (double)count, resident_mib());
#pragma GCC diagnostic pop
}

/* Has all callers call for some seconds; returns how many calls were made, their times one behind another. */
static int call_all(autopipe_model model, const request *asked, const arrays *inputs, double seconds, double *times, size_t *count, double *took) {
  caller *callers = calloc((size_t)asked->callers, sizeof *callers);
  pthread_t *threads = calloc((size_t)asked->callers, sizeof *threads);
  int started = 0, code = 0;
  double start = now();
  for (; callers && threads && started < asked->callers; started++) {
    callers[started] = (caller){.model = model, .inputs = inputs, .until = start + seconds};
    callers[started].times = malloc(MAX_CALLS * sizeof(double));
    if (!callers[started].times || pthread_create(&threads[started], NULL, call, &callers[started])) break;
  }
  if (started < asked->callers) code = complain(AUTOPIPE_OUT_OF_MEMORY, "no memory for %d callers", asked->callers);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  *took = now() - start;
  *count = 0;
  for (int i = 0; i < started; i++) {
    if (callers[i].status && !code) code = complain(callers[i].status, "%s", callers[i].reason);
    size_t kept = callers[i].calls < (size_t)(MAX_CALLS) - *count ? callers[i].calls : (size_t)MAX_CALLS - *count;
    memcpy(times + *count, callers[i].times, kept * sizeof *times);
    *count += kept;
    free(callers[i].times);
  }
  free(callers);
  free(threads);
  return code;
}

static int bench_turn(autopipe_model model, const request *asked, double *times) {
  static arrays inputs;
  double took;
  size_t count = 0;
  int code = make_inputs(model, asked, &inputs);
  if (!code && asked->warmup > 0) code = call_all(model, asked, &inputs, asked->warmup, times, &count, &took);
  if (!code) code = call_all(model, asked, &inputs, asked->seconds, times, &count, &took);
  if (!code && !count) code = complain(AUTOPIPE_FAILED, "no call ended in time");
  if (!code) print_times(model, asked, times, count, took);
  free_arrays(&inputs);
  return code;
}

int bench(autopipe_model model, const request *asked) {
  int turns = 1;
  for (int i = 0; i < asked->size_count; i++) turns = count_numbers(asked->sizes[i]) > turns ? count_numbers(asked->sizes[i]) : turns;
  for (int i = 0; i < asked->size_count; i++)
    if (count_numbers(asked->sizes[i]) != 1 && count_numbers(asked->sizes[i]) != turns)
      return complain(AUTOPIPE_INVALID_ARGUMENT, "--size %s: it takes 1 or %d sizes, as another --size has", asked->sizes[i], turns);
  double *times = malloc(MAX_CALLS * sizeof *times);
  int code = times ? 0 : complain(AUTOPIPE_OUT_OF_MEMORY, "no memory");
  request turn = *asked;
  for (turn.turn = 0; turn.turn < turns && !code; turn.turn++) code = bench_turn(model, &turn, times);
  free(times);
  return code;
}
