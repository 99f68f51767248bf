/* Opens each folder, and runs what opens on inputs of the smallest sizes; prints a status and a reason for each. */
#include <stdio.h>
#include <stdlib.h>

#include "autopipe.h"

enum { MOST = 300, LARGEST = 1 << 26 };

/* Fills in an input of zeros; 0 where that takes too much memory. */
static int make_input(const autopipe_port *port, autopipe_tensor *out) {
  *out = (autopipe_tensor){.name = port->name, .rank = port->rank, .bytes = autopipe_dtype_bytes(port->dtype)};
  for (int axis = 0; axis < port->rank; axis++) {
    out->shape[axis] = port->minimum[axis];
    if (__builtin_mul_overflow(out->bytes, (size_t)out->shape[axis], &out->bytes) || out->bytes > LARGEST) return 0;
  }
  out->data = calloc(1, out->bytes + 1);
  return out->data != NULL;
}

static autopipe_status run_once(autopipe_model model) {
  static autopipe_tensor inputs[MOST], outputs[MOST];
  size_t input_count = 0, output_count = 0, made = 0;
  autopipe_port port;
  autopipe_status status = autopipe_input_count(model, &input_count);
  if (!status) status = autopipe_output_count(model, &output_count);
  for (size_t i = 0; i < output_count && !status; i++) {
    status = autopipe_output(model, i, &port);
    outputs[i] = (autopipe_tensor){.name = port.name};
  }
  for (; made < input_count && !status; made++)
    if ((status = autopipe_input(model, made, &port)) || !make_input(&port, &inputs[made])) break;
  if (!status && made == input_count) status = autopipe_run(model, inputs, input_count, outputs, output_count, AUTOPIPE_NO_LIMIT);
  for (size_t i = 0; i < output_count; i++) autopipe_release(&outputs[i]);
  while (made) free(inputs[--made].data);
  return status;
}

int main(int count, char **words) {
  autopipe_options options = {sizeof options, 1, 1, 0, 0};
  for (int i = 1; i < count; i++) {
    autopipe_model model;
    options.verify_digests = i % 50 == 49;
    options.copy_weights = i % 3 == 0;
    autopipe_status status = autopipe_open(words[i], &options, &model);
    if (!status) {
      status = run_once(model);
      printf("%d run %s\n", status, autopipe_last_error());
      if (autopipe_close(model) || autopipe_close(model) != AUTOPIPE_INVALID_HANDLE) return puts("closing failed"), 1;
    } else {
      printf("%d open %s\n", status, autopipe_last_error());
    }
    fflush(stdout);
  }
}
