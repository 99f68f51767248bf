/* Outputs in memory of the caller: written by kernels where it fits, and copied elsewhere. With COUNT, counts copies of
 * large outputs: the library calls this program's memmove. Prints a line for each failed expectation. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autopipe.h"

enum { ROWS = 128, COLUMNS = 1024, COUNT_OF = ROWS * COLUMNS, BYTES = 4 * COUNT_OF, SUM = 0, DOUBLE, SAME, AGAIN, LAST, OUTPUTS };
static const char *const NAMES[OUTPUTS] = {"sum", "double", "same", "again", "rows"};
static const size_t SIZES[OUTPUTS] = {BYTES, BYTES, BYTES, BYTES, 4 * ROWS};
static int failures;
static _Thread_local int copies;

#ifdef COUNT
void *memmove(void *to, const void *from, size_t size) {
  volatile char *out = to;
  const char *in = from;
  copies += size == BYTES;
  for (size_t i = 0; i < size; i++) out[i] = in[i]; /* in this test they do not overlap */
  return to;
}
#define COPIES(number) EXPECT(copies == number)
#else
#define COPIES(number) (void)0
#endif

static void expect(int line, int is_true) {
  if (!is_true) failures++, printf("line %d: %d copies, %s\n", line, copies, autopipe_last_error());
}
#define EXPECT(condition) expect(__LINE__, condition)

static float *make_floats(size_t count) {
  float *made = aligned_alloc(64, (count * sizeof *made + 63) / 64 * 64 + 64);
  for (size_t i = 0; i < count; i++) made[i] = NAN;
  return made;
}

static float value_of(int output, float x) {
  switch (output) {
    case SUM: case AGAIN: return 3 * x;
    case DOUBLE: return 2 * x;
    default: return x;
  }
}

static int is_right(int output, const float *found, const float *x) {
  for (int i = 0; i < (output == LAST ? ROWS : COUNT_OF); i++) {
    float expected = output == LAST ? -2 * x[i * COLUMNS] : value_of(output, x[i]);
    if (!(fabsf(found[i] - expected) <= 1e-5f)) return 0;
  }
  return 1;
}

static autopipe_tensor input_of(float *x) { return (autopipe_tensor){.name = "x", .data = x, .bytes = BYTES}; }

static void make_outputs(float *data[OUTPUTS], autopipe_tensor outputs[OUTPUTS]) {
  for (int i = 0; i < OUTPUTS; i++) {
    data[i] = make_floats(SIZES[i] / 4);
    outputs[i] = (autopipe_tensor){.name = NAMES[i], .data = data[i], .bytes = SIZES[i]};
  }
  copies = 0;
}

static void free_outputs(float *data[OUTPUTS]) {
  for (int i = 0; i < OUTPUTS; i++) free(data[i]);
}

static void check_all(autopipe_model model, float *x) {
  float *data[OUTPUTS];
  autopipe_tensor outputs[OUTPUTS], input = input_of(x);
  make_outputs(data, outputs);
  outputs[SUM].bytes += 64; /* more than the output needs */
  EXPECT(autopipe_run(model, &input, 1, outputs, OUTPUTS, AUTOPIPE_NO_LIMIT) == AUTOPIPE_OK);
  COPIES(2); /* the input itself, and an output that is two */
  for (int i = 0; i < OUTPUTS; i++) EXPECT(is_right(i, data[i], x) && outputs[i].bytes == SIZES[i] && !outputs[i].owner);
  free_outputs(data);
}

/* Each of these has outputs that kernels must not write to. */
static void check_copied(autopipe_model model, float *x) {
  float *data[OUTPUTS], *own = make_floats(COUNT_OF);
  autopipe_tensor outputs[OUTPUTS], input = input_of(x), none = {.name = "double"};
  make_outputs(data, outputs);
  EXPECT(autopipe_run(model, &input, 1, outputs, OUTPUTS, 60000) == AUTOPIPE_OK); /* a limit */
  COPIES(4);
  for (int i = 0; i < OUTPUTS; i++) EXPECT(is_right(i, data[i], x));
  free_outputs(data), make_outputs(data, outputs);
  outputs[DOUBLE].data = data[DOUBLE] + 1; /* not aligned */
  EXPECT(autopipe_run(model, &input, 1, outputs, OUTPUTS, AUTOPIPE_NO_LIMIT) == AUTOPIPE_OK);
  COPIES(4);
  EXPECT(is_right(DOUBLE, data[DOUBLE] + 1, x) && is_right(SUM, data[SUM], x));
  free_outputs(data), make_outputs(data, outputs);
  outputs[AGAIN].data = data[SUM]; /* shared by two outputs */
  EXPECT(autopipe_run(model, &input, 1, outputs, OUTPUTS, AUTOPIPE_NO_LIMIT) == AUTOPIPE_OK);
  COPIES(4);
  EXPECT(is_right(SUM, data[SUM], x) && is_right(DOUBLE, data[DOUBLE], x));
  memcpy(own, x, BYTES); /* an input that is an output */
  copies = 0, outputs[AGAIN].data = data[AGAIN], outputs[DOUBLE].data = own, input.data = own;
  EXPECT(autopipe_run(model, &input, 1, outputs, OUTPUTS, AUTOPIPE_NO_LIMIT) == AUTOPIPE_OK);
  COPIES(4);
  EXPECT(is_right(DOUBLE, own, x) && is_right(SUM, data[SUM], x) && is_right(LAST, data[LAST], x));
  input.data = x, copies = 0;
  EXPECT(autopipe_run(model, &input, 1, outputs, 1, AUTOPIPE_NO_LIMIT) == AUTOPIPE_OK); /* one of the outputs */
  COPIES(1);
  EXPECT(autopipe_run(model, &input, 1, &none, 1, AUTOPIPE_NO_LIMIT) == AUTOPIPE_OK && is_right(DOUBLE, none.data, x));
  COPIES(1);
  autopipe_release(&none);
  free(own), free_outputs(data);
}

static void check_refused(autopipe_model model, float *x) {
  float *data[OUTPUTS];
  autopipe_tensor outputs[OUTPUTS], input = input_of(x);
  make_outputs(data, outputs);
  outputs[DOUBLE].bytes--;
  EXPECT(autopipe_run(model, &input, 1, outputs, OUTPUTS, AUTOPIPE_NO_LIMIT) == AUTOPIPE_INVALID_ARGUMENT);
  free_outputs(data), make_outputs(data, outputs);
  EXPECT(autopipe_run(model, &input, 1, outputs, OUTPUTS, 0) == AUTOPIPE_TIMEOUT && isnan(data[SUM][0]));
  free_outputs(data);
}

/* States stay in the stream: the others are copied. */
static void check_stream(autopipe_model model) {
  autopipe_model stream;
  autopipe_state state = {"x", "sum"};
  float *data = make_floats(COUNT_OF), *zeros = calloc(COUNT_OF, sizeof *zeros);
  autopipe_tensor output = {.name = "double", .data = data, .bytes = BYTES};
  EXPECT(autopipe_open_stream(model, &state, 1, &stream) == AUTOPIPE_OK);
  EXPECT(autopipe_run(stream, NULL, 0, &output, 1, AUTOPIPE_NO_LIMIT) == AUTOPIPE_OK && is_right(DOUBLE, data, zeros));
  EXPECT(autopipe_close(stream) == AUTOPIPE_OK);
  free(data), free(zeros);
}

static void *call_often(void *of) {
  autopipe_model model = *(autopipe_model *)of;
  float *data[OUTPUTS], *x = make_floats(COUNT_OF);
  autopipe_tensor outputs[OUTPUTS], input = input_of(x);
  void *failed = NULL;
  make_outputs(data, outputs);
  for (int call = 0; call < 10 && !failed; call++) {
    for (int i = 0; i < COUNT_OF; i++) x[i] = (float)(i % 97 + call) / 50;
    if (autopipe_run(model, &input, 1, outputs, OUTPUTS, AUTOPIPE_NO_LIMIT)) failed = "a call failed";
    for (int i = 0; i < OUTPUTS && !failed; i++) if (!is_right(i, data[i], x)) failed = "an output is wrong";
  }
  free(x), free_outputs(data);
  return failed;
}

int main(int count, char **words) {
  autopipe_options options = {sizeof options, 1, 2, 0, 0};
  autopipe_model model;
  float *x = make_floats(COUNT_OF);
  for (int i = 0; i < COUNT_OF; i++) x[i] = (float)(i % 1013) / 400 - 1;
  EXPECT(count == 2 && autopipe_open(words[1], &options, &model) == AUTOPIPE_OK);
  if (failures) return failures;
  check_all(model, x), check_copied(model, x), check_refused(model, x), check_stream(model), check_all(model, x);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, call_often, &model);
  for (int i = 0; i < 4; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    EXPECT(!failed);
  }
  EXPECT(autopipe_close(model) == AUTOPIPE_OK);
  free(x);
  puts(failures ? "failed" : "done");
  return failures;
}
