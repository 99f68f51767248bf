/* Calls every function of autopipe.h with right and wrong arguments; prints a line for each failed expectation. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "autopipe.h"

static int failures;

static void expect(int line, int is_true) {
  if (!is_true) failures++, printf("line %d: %s\n", line, autopipe_last_error());
}
#define EXPECT(condition) expect(__LINE__, condition)
#define SAYS(text) EXPECT(strstr(autopipe_last_error(), text) != NULL)

static float x[33] __attribute__((aligned(64)));
static int64_t ids[4] __attribute__((aligned(64))) = {0, 1, 2, 3};

static autopipe_tensor of_x(float *data, size_t bytes) { return (autopipe_tensor){.name = "data/x", .data = data, .bytes = bytes}; }

static autopipe_tensor of_ids(void) { return (autopipe_tensor){.name = "ids", .data = ids, .bytes = sizeof ids}; }

static void *call_often(void *of) {
  autopipe_model model = *(autopipe_model *)of;
  for (int i = 0; i < 200; i++) {
    float scores[32];
    autopipe_tensor inputs[] = {of_x(x, 128), of_ids()}, output = {.name = "scores", .data = scores, .bytes = sizeof scores};
    autopipe_status status = autopipe_run(model, inputs, 2, &output, 1, AUTOPIPE_NO_LIMIT);
    if (status && status != AUTOPIPE_INVALID_HANDLE) return "a call failed";
  }
  return NULL;
}

static void check_calls(autopipe_model model) {
  float scores[32], again[32];
  autopipe_tensor inputs[] = {of_x(x, 128), of_ids()};
  autopipe_tensor outputs[] = {{.name = "scores", .data = scores, .bytes = sizeof scores}, {.name = "best"}};
  EXPECT(autopipe_run(model, inputs, 2, outputs, 2, AUTOPIPE_NO_LIMIT) == AUTOPIPE_OK);
  EXPECT(outputs[0].bytes == 128 && outputs[0].rank == 2 && outputs[0].shape[0] == 4 && !outputs[0].owner);
  EXPECT(outputs[1].bytes == 32 && outputs[1].dtype == AUTOPIPE_INT64 && outputs[1].owner && outputs[1].data);
  autopipe_release(&outputs[1]);
  autopipe_release(&outputs[1]);
  EXPECT(!outputs[1].data);
  memmove(x + 1, x, 128); /* the same values where no vector may be loaded */
  inputs[0].data = x + 1;
  outputs[0] = (autopipe_tensor){.name = "scores", .data = again, .bytes = sizeof again};
  EXPECT(autopipe_run(model, inputs, 2, outputs, 1, 1000) == AUTOPIPE_OK && !memcmp(scores, again, sizeof again));
  memmove(x, x + 1, 128);
}

/* A call whose limit has passed before its first kernel. */
static void check_limits(autopipe_model model) {
  float scores[32] = {42}, again[32];
  autopipe_tensor inputs[] = {of_x(x, 128), of_ids()};
  autopipe_tensor outputs[] = {{.name = "scores", .data = scores, .bytes = sizeof scores}, {.name = "best"}};
  EXPECT(autopipe_run(model, inputs, 2, outputs, 2, 0) == AUTOPIPE_TIMEOUT && scores[0] == 42 && !outputs[1].data);
  SAYS("within 0 ms");
  EXPECT(autopipe_run(model, inputs, 2, outputs, 1, INT64_MAX) == AUTOPIPE_OK && scores[0] != 42);
  outputs[0].data = again;
  EXPECT(autopipe_run(model, inputs, 2, outputs, 1, AUTOPIPE_UNTIL_CANCELLED) == AUTOPIPE_OK);
  EXPECT(autopipe_run(model, inputs, 2, outputs, 1, 0) == AUTOPIPE_TIMEOUT);
  EXPECT(autopipe_run(model, inputs, 2, outputs, 1, AUTOPIPE_NO_LIMIT) == AUTOPIPE_OK && !memcmp(scores, again, sizeof again));
  EXPECT(autopipe_run(model, inputs, 2, outputs, 1, -3) == AUTOPIPE_INVALID_ARGUMENT);
}

static atomic_int cancelled_callers;

/* Calls until a call was cancelled, and once more. */
static void *call_until_cancelled(void *of) {
  autopipe_model model = *(autopipe_model *)of;
  autopipe_tensor inputs[] = {of_x(x, 128), of_ids()}, output = {.name = "scores"};
  autopipe_status status;
  while (!(status = autopipe_run(model, inputs, 2, &output, 1, AUTOPIPE_UNTIL_CANCELLED))) autopipe_release(&output);
  int was_cancelled = status == AUTOPIPE_CANCELLED && strstr(autopipe_last_error(), "cancelled") && !output.data;
  cancelled_callers++;
  return was_cancelled ? NULL : "a call ended otherwise";
}

static void check_cancel(autopipe_model model, int callers) {
  pthread_t threads[callers];
  cancelled_callers = 0;
  for (int i = 0; i < callers; i++) pthread_create(&threads[i], NULL, call_until_cancelled, &model);
  while (cancelled_callers < callers) EXPECT(autopipe_cancel(model) == AUTOPIPE_OK);
  for (int i = 0; i < callers; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    EXPECT(!failed);
  }
  check_calls(model);
  EXPECT(autopipe_cancel(0) == AUTOPIPE_INVALID_HANDLE);
}

/* A fork has no thread of an instance but its own. Sanitizers lose locks in a fork: a child that starts a thread may wait
 * for the allocator of libasan 12 for ever. */
static void check_fork(autopipe_model model) {
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  int status = 1;
  pid_t child = fork();
  if (!child) {
    check_calls(model);
    _exit(failures || autopipe_close(model));
  }
  EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
#endif
  check_calls(model);
}

static void check_refusals(autopipe_model model) {
  float scores[32];
  autopipe_tensor inputs[] = {of_x(x, 128), of_ids(), of_ids()}, output = {.name = "scores", .data = scores, .bytes = 4};
  EXPECT(autopipe_run(model, inputs, 1, &output, 1, -1) == AUTOPIPE_INVALID_ARGUMENT);
  SAYS("ids is missing");
  EXPECT(autopipe_run(model, inputs, 3, &output, 1, -1) == AUTOPIPE_INVALID_ARGUMENT);
  SAYS("twice");
  EXPECT(autopipe_run(model, inputs, 2, &output, 1, -1) == AUTOPIPE_INVALID_ARGUMENT);
  SAYS("its buffer 4");
  EXPECT(autopipe_run(model, NULL, 2, &output, 1, -1) == AUTOPIPE_INVALID_ARGUMENT);
  output.name = NULL;
  EXPECT(autopipe_run(model, inputs, 2, &output, 1, -1) == AUTOPIPE_INVALID_ARGUMENT);
  SAYS("no output NULL");
  inputs[0].bytes = 100;
  EXPECT(autopipe_run(model, inputs, 2, NULL, 0, -1) == AUTOPIPE_INVALID_ARGUMENT);
  SAYS("100 bytes");
  inputs[0] = of_x(NULL, 128);
  EXPECT(autopipe_run(model, inputs, 2, NULL, 0, -1) == AUTOPIPE_INVALID_ARGUMENT);
  inputs[0] = of_x(x, 128);
  inputs[0].dtype = AUTOPIPE_FLOAT64;
  EXPECT(autopipe_run(model, inputs, 2, NULL, 0, -1) == AUTOPIPE_INVALID_ARGUMENT);
  SAYS("is float64");
  inputs[0].dtype = 0, inputs[0].rank = 2, inputs[0].shape[0] = 8, inputs[0].shape[1] = 4;
  EXPECT(autopipe_run(model, inputs, 2, NULL, 0, -1) == AUTOPIPE_INVALID_ARGUMENT);
  SAYS("dimension 0 is 8");
  inputs[0].rank = 1000000;
  EXPECT(autopipe_run(model, inputs, 2, NULL, 0, -1) == AUTOPIPE_INVALID_ARGUMENT);
}

static void check_ports(autopipe_model model) {
  size_t count;
  autopipe_port port;
  EXPECT(autopipe_input_count(model, &count) == AUTOPIPE_OK && count == 2);
  EXPECT(autopipe_output_count(model, &count) == AUTOPIPE_OK && count == 2);
  EXPECT(autopipe_input(model, 0, &port) == AUTOPIPE_OK && !strcmp(port.name, "data/x") && port.rank == 2);
  EXPECT(port.shape[0] == 4 && port.shape[1] == 8 && port.minimum[1] == 8 && port.maximum[1] == 8);
  EXPECT(autopipe_input(model, 2, &port) == AUTOPIPE_INVALID_ARGUMENT);
  EXPECT(autopipe_input(model, 0, NULL) == AUTOPIPE_INVALID_ARGUMENT);
  EXPECT(autopipe_input_count(model, NULL) == AUTOPIPE_INVALID_ARGUMENT);
  const char *processor;
  EXPECT(autopipe_processor(model, &processor) == AUTOPIPE_OK && strlen(processor) > 0);
  EXPECT(autopipe_processor(model, NULL) == AUTOPIPE_INVALID_ARGUMENT);
}

static void check_streams(autopipe_model model) {
  autopipe_model stream;
  autopipe_state state = {"data/x", "scores"}, wrong = {"data/x", "best"}, none = {"z", "scores"};
  EXPECT(autopipe_open_stream(model, &wrong, 1, &stream) == AUTOPIPE_INVALID_ARGUMENT);
  EXPECT(autopipe_open_stream(model, &none, 1, &stream) == AUTOPIPE_INVALID_ARGUMENT);
  EXPECT(autopipe_open_stream(model, NULL, 0, &stream) == AUTOPIPE_INVALID_ARGUMENT);
  EXPECT(autopipe_reset(model) == AUTOPIPE_INVALID_ARGUMENT);
  EXPECT(autopipe_open_stream(model, &state, 1, &stream) == AUTOPIPE_OK);
  int64_t best[4][4];
  size_t count;
  autopipe_tensor input = of_ids();
  EXPECT(autopipe_input_count(stream, &count) == AUTOPIPE_OK && count == 1);
  for (int i = 0; i < 4; i++) { /* two calls from zeros, and two more with one between them that ends early */
    autopipe_tensor output = {.name = "best", .data = best[i], .bytes = sizeof *best};
    if (i == 2) EXPECT(autopipe_reset(stream) == AUTOPIPE_OK && autopipe_cancel(stream) == AUTOPIPE_OK);
    if (i == 3) EXPECT(autopipe_run(stream, &input, 1, &output, 1, 0) == AUTOPIPE_TIMEOUT);
    EXPECT(autopipe_run(stream, &input, 1, &output, 1, AUTOPIPE_NO_LIMIT) == AUTOPIPE_OK);
  }
  EXPECT(!memcmp(best[0], best[2], sizeof *best) && !memcmp(best[1], best[3], sizeof *best));
  EXPECT(memcmp(best[0], best[1], sizeof *best)); /* so the states tell */
  EXPECT(autopipe_close(stream) == AUTOPIPE_OK);
  EXPECT(autopipe_reset(stream) == AUTOPIPE_INVALID_HANDLE);
}

int main(int count, char **words) {
  autopipe_options options = {sizeof options, atoi(words[2]), 2, 1, !strcmp(words[count - 1], "copy")};
  autopipe_model model, other;
  for (int i = 0; i < 32; i++) x[i] = (float)i / 7 - 2;
  EXPECT(autopipe_open(NULL, NULL, &model) == AUTOPIPE_INVALID_ARGUMENT);
  EXPECT(autopipe_open("/nowhere", NULL, &model) == AUTOPIPE_INVALID_FILE);
  EXPECT(autopipe_run(0, NULL, 0, NULL, 0, 0) == AUTOPIPE_INVALID_HANDLE);
  options.instances = -1;
  EXPECT(autopipe_open(words[1], &options, &model) == AUTOPIPE_INVALID_ARGUMENT);
  options.instances = 2;
  EXPECT(autopipe_open(words[1], &options, &model) == AUTOPIPE_OK);
  EXPECT(autopipe_open(words[1], NULL, &other) == AUTOPIPE_OK);
  if (failures) return failures;
  check_ports(model), check_calls(model), check_calls(other), check_fork(model), check_fork(other), check_refusals(model), check_streams(model);
  check_limits(model), check_limits(other);
  check_cancel(model, 4), check_cancel(other, 1); /* some wait for two instances; none waits for one */
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, call_often, i % 2 ? &other : &model);
  EXPECT(autopipe_close(model) == AUTOPIPE_OK); /* while it is called */
  for (int i = 0; i < 4; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    EXPECT(!failed);
  }
  EXPECT(autopipe_close(model) == AUTOPIPE_INVALID_HANDLE);
  SAYS("is closed");
  EXPECT(autopipe_close(other) == AUTOPIPE_OK);
  puts(failures ? "failed" : "done");
  return failures;
}
