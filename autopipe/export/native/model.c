/* Handles: the table of open models and streams, and what a call checks before it runs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "loaded.h"

enum { MAX_HANDLES = 4096, ALIGNMENT = 64 };

/* What a handle stands for. A stream has states, and its calls take turns. */
typedef struct opened {
  loaded *of;
  int calls, is_stream, closes, has_turn;
  atomic_uint cancels;
  int outputs_of_states[MAX_PORTS]; /* by input; -1 where it is no state */
  int is_state_output[MAX_PORTS];
  TVMFFIObject *states[MAX_PORTS]; /* NULL for zeros */
} opened;

static struct slot {
  uint32_t generation;
  opened *model;
} slots[MAX_HANDLES];
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER;

static struct slot *find_slot(autopipe_model handle) {
  uint32_t place = (uint32_t)handle, generation = (uint32_t)(handle >> 32);
  if (!place || place > MAX_HANDLES) return NULL;
  struct slot *slot = &slots[place - 1];
  return slot->model && slot->generation == generation && !slot->model->closes ? slot : NULL;
}

/* Returns what a handle stands for, which stays until give_back is called; NULL where it is closed. */
static opened *borrow(autopipe_model handle) {
  pthread_mutex_lock(&table);
  struct slot *slot = find_slot(handle);
  opened *model = slot ? slot->model : NULL;
  if (model) model->calls++;
  pthread_mutex_unlock(&table);
  if (!model) fail(AUTOPIPE_INVALID_HANDLE, "the model is closed, or was never opened");
  return model;
}

static autopipe_status give_back(opened *model, autopipe_status status) {
  pthread_mutex_lock(&table);
  if (!--model->calls) pthread_cond_broadcast(&returned);
  pthread_mutex_unlock(&table);
  return status ? status : succeed();
}

/* Ends what nothing uses any more. */
static void end(opened *model) {
  for (int i = 0; i < MAX_PORTS; i++) release_object(model->states[i]);
  pthread_mutex_lock(&table);
  int last = --model->of->users == 0;
  pthread_mutex_unlock(&table);
  if (last) unload(model->of);
  free(model);
}

static autopipe_status enter(opened *model, autopipe_model *handle) {
  pthread_mutex_lock(&table);
  int place = 0;
  while (place < MAX_HANDLES && slots[place].model) place++;
  if (place < MAX_HANDLES) {
    slots[place].model = model;
    slots[place].generation++;
    *handle = (uint64_t)slots[place].generation << 32 | (uint64_t)(place + 1);
  }
  pthread_mutex_unlock(&table);
  return place < MAX_HANDLES ? AUTOPIPE_OK : fail(AUTOPIPE_OUT_OF_MEMORY, "%d models are open", MAX_HANDLES);
}

static autopipe_status add_handle(loaded *of, opened **model, autopipe_model *handle) {
  *model = calloc(1, sizeof **model);
  if (!*model) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for a handle");
  (*model)->of = of;
  for (int i = 0; i < MAX_PORTS; i++) (*model)->outputs_of_states[i] = -1;
  autopipe_status status = enter(*model, handle);
  if (status) free(*model);
  return status;
}

autopipe_status autopipe_open(const char *folder, const autopipe_options *options, autopipe_model *model) {
  if (!folder || !model || (options && options->size != sizeof *options))
    return fail(AUTOPIPE_INVALID_ARGUMENT, "autopipe_open: folder and model are NULL, or options.size is not that of this header");
  static const autopipe_options none = {sizeof none, 0, 0, 0, 0};
  loaded *of;
  opened *made;
  *model = 0;
  autopipe_status status = load_folder(folder, options ? options : &none, &of);
  if (status) return status;
  of->users = 1;
  if ((status = add_handle(of, &made, model))) return unload(of), status;
  return succeed();
}

autopipe_status autopipe_close(autopipe_model handle) {
  pthread_mutex_lock(&table);
  struct slot *slot = find_slot(handle);
  opened *model = slot ? slot->model : NULL;
  if (model) {
    model->closes = 1;
    while (model->calls) pthread_cond_wait(&returned, &table);
    slot->model = NULL;
  }
  pthread_mutex_unlock(&table);
  if (!model) return fail(AUTOPIPE_INVALID_HANDLE, "the model is closed, or was never opened");
  end(model);
  return succeed();
}

autopipe_status autopipe_concurrency(autopipe_model handle, int *threads, int *instances) {
  opened *model = borrow(handle);
  if (!model) return AUTOPIPE_INVALID_HANDLE;
  if (threads) *threads = model->of->parts.threads;
  if (instances) *instances = model->of->instance_count;
  return give_back(model, AUTOPIPE_OK);
}

autopipe_status autopipe_processor(autopipe_model handle, const char **name) {
  opened *model = borrow(handle);
  if (!model) return AUTOPIPE_INVALID_HANDLE;
  if (!name) return give_back(model, fail(AUTOPIPE_INVALID_ARGUMENT, "name is NULL"));
  *name = model->of->parts.about.processor;
  return give_back(model, AUTOPIPE_OK);
}

/* The place of a port of a handle, which does not count states; -1 for none. */
static int place_of(const opened *model, int is_output, size_t index) {
  int count = is_output ? model->of->parts.about.output_count : model->of->parts.about.input_count;
  for (int i = 0; i < count; i++) {
    int is_state = is_output ? model->is_state_output[i] : model->outputs_of_states[i] >= 0;
    if (!is_state && !index--) return i;
  }
  return -1;
}

static autopipe_status count_ports(autopipe_model handle, int is_output, size_t *count) {
  opened *model = borrow(handle);
  if (!model) return AUTOPIPE_INVALID_HANDLE;
  if (!count) return give_back(model, fail(AUTOPIPE_INVALID_ARGUMENT, "count is NULL"));
  for (*count = 0; place_of(model, is_output, *count) >= 0;) ++*count;
  return give_back(model, AUTOPIPE_OK);
}

autopipe_status autopipe_input_count(autopipe_model model, size_t *count) { return count_ports(model, 0, count); }

autopipe_status autopipe_output_count(autopipe_model model, size_t *count) { return count_ports(model, 1, count); }

/* Fills in the range of an axis: where it is a sum, that of the sum, whose multiple is 1. Both ends are 0 where nothing is
 * known of an output. */
static void describe_axis(const description *about, const extent *size, autopipe_port *out, int axis) {
  out->minimum[axis] = size->constant;
  out->maximum[axis] = size->constant + size->spread;
  out->multiple[axis] = 1;
  for (int i = 0; i < size->count; i++) {
    const dimension *of = &about->dimensions[size->dimensions[i]];
    out->minimum[axis] += (of->minimum + of->multiple - 1) / of->multiple * of->multiple;
    out->maximum[axis] += of->maximum / of->multiple * of->multiple;
    if (size->count == 1 && !size->constant) out->multiple[axis] = of->multiple;
  }
}

static autopipe_status describe_port(autopipe_model handle, int is_output, size_t index, autopipe_port *out) {
  opened *model = borrow(handle);
  if (!model) return AUTOPIPE_INVALID_HANDLE;
  int place = out ? place_of(model, is_output, index) : -1;
  if (place < 0) return give_back(model, fail(AUTOPIPE_INVALID_ARGUMENT, "there is no %s %zu", is_output ? "output" : "input", index));
  const port *of = is_output ? &model->of->parts.about.outputs[place] : &model->of->parts.about.inputs[place];
  memset(out, 0, sizeof *out);
  out->name = of->name, out->dtype = of->dtype, out->rank = of->rank;
  for (int axis = 0; axis < of->rank; axis++) {
    out->shape[axis] = of->is_dynamic[axis] ? -1 : of->extents[axis].constant;
    describe_axis(&model->of->parts.about, &of->extents[axis], out, axis);
  }
  return give_back(model, AUTOPIPE_OK);
}

autopipe_status autopipe_input(autopipe_model model, size_t index, autopipe_port *out) { return describe_port(model, 0, index, out); }

autopipe_status autopipe_output(autopipe_model model, size_t index, autopipe_port *out) { return describe_port(model, 1, index, out); }

static int find_port(const port *ports, int count, const char *name) {
  for (int i = 0; name && i < count; i++)
    if (!strcmp(ports[i].name, name)) return i;
  return -1;
}

static autopipe_status check_rank(const port *of, const autopipe_tensor *given) {
  int is_open = 0;
  for (int axis = 0; axis < of->rank; axis++) is_open |= of->is_dynamic[axis];
  if (given->dtype && given->dtype != of->dtype)
    return fail(AUTOPIPE_INVALID_ARGUMENT, "input %s is %s, the model takes %s", of->name, autopipe_dtype_name(given->dtype), autopipe_dtype_name(of->dtype));
  if (given->rank ? given->rank != of->rank : is_open)
    return fail(AUTOPIPE_INVALID_ARGUMENT, "input %s has %d dimensions, the model takes %d", of->name, given->rank, of->rank);
  return AUTOPIPE_OK;
}

/* Reads the sizes of dimensions from an input whose axes are dimensions by themselves. */
static autopipe_status read_sizes(const description *about, const port *of, const autopipe_tensor *given, int64_t *sizes) {
  for (int axis = 0; axis < of->rank; axis++) {
    const extent *size = &of->extents[axis];
    if (size->count != 1 || size->constant) continue;
    int place = size->dimensions[0];
    const dimension *one = &about->dimensions[place];
    int64_t value = given->shape[axis];
    if (sizes[place] && sizes[place] != value)
      return fail(AUTOPIPE_INVALID_ARGUMENT, "input %s: dimension %d (%s) is %lld, and %lld in another place", of->name, axis, one->name, (long long)value, (long long)sizes[place]);
    if (value < one->minimum || value > one->maximum || value % one->multiple) {
      char wanted[48] = "not";
      if (one->multiple > 1) snprintf(wanted, sizeof wanted, "not a multiple of %lld", (long long)one->multiple);
      return fail(AUTOPIPE_INVALID_ARGUMENT, "input %s: dimension %d (%s) is %lld, %s from %lld to %lld", of->name, axis, one->name, (long long)value, wanted, (long long)one->minimum, (long long)one->maximum);
    }
    sizes[place] = value;
  }
  return AUTOPIPE_OK;
}

static autopipe_status check_shape(const port *of, const autopipe_tensor *given, const int64_t *sizes) {
  size_t bytes = autopipe_dtype_bytes(of->dtype);
  for (int axis = 0; axis < of->rank; axis++) {
    int64_t wanted = size_at(&of->extents[axis], sizes);
    if (given->rank && given->shape[axis] != wanted)
      return fail(AUTOPIPE_INVALID_ARGUMENT, "input %s: dimension %d is %lld, the model takes %lld", of->name, axis, (long long)given->shape[axis], (long long)wanted);
    if (__builtin_mul_overflow(bytes, (size_t)wanted, &bytes)) return fail(AUTOPIPE_INVALID_ARGUMENT, "input %s is too large", of->name);
  }
  if (given->bytes != bytes || (!given->data && bytes))
    return fail(AUTOPIPE_INVALID_ARGUMENT, "input %s has %zu bytes, the model takes %zu", of->name, given->data ? given->bytes : 0, bytes);
  return AUTOPIPE_OK;
}

static autopipe_status place_inputs(const opened *model, const autopipe_tensor *inputs, size_t count, job *work) {
  const description *about = &model->of->parts.about;
  for (size_t i = 0; i < count; i++) {
    int place = find_port(about->inputs, about->input_count, inputs[i].name);
    if (place < 0 || model->outputs_of_states[place] >= 0)
      return fail(AUTOPIPE_INVALID_ARGUMENT, "the model has no input %s", inputs[i].name ? inputs[i].name : "NULL");
    if (work->inputs[place]) return fail(AUTOPIPE_INVALID_ARGUMENT, "input %s is given twice", inputs[i].name);
    work->inputs[place] = &inputs[i];
  }
  autopipe_status status = AUTOPIPE_OK;
  for (int i = 0; i < about->input_count && !status; i++) {
    if (model->outputs_of_states[i] >= 0) continue;
    if (!work->inputs[i]) return fail(AUTOPIPE_INVALID_ARGUMENT, "input %s is missing", about->inputs[i].name);
    status = check_rank(&about->inputs[i], work->inputs[i]);
    if (!status) status = read_sizes(about, &about->inputs[i], work->inputs[i], work->sizes);
  }
  for (int i = 0; i < about->input_count && !status; i++)
    if (work->inputs[i]) status = check_shape(&about->inputs[i], work->inputs[i], work->sizes);
  return status;
}

static int choose_library(const description *about, const int64_t *sizes) {
  for (int i = 1; i < about->library_count; i++)
    if (!memcmp(about->libraries[i].sizes, sizes, (size_t)about->dimension_count * sizeof *sizes)) return i;
  return 0;
}

static autopipe_status place_outputs(const opened *model, const autopipe_tensor *outputs, size_t count, job *work) {
  const description *about = &model->of->parts.about;
  for (size_t i = 0; i < count; i++) {
    int place = find_port(about->outputs, about->output_count, outputs[i].name);
    if (place < 0 || model->is_state_output[place])
      return fail(AUTOPIPE_INVALID_ARGUMENT, "the model has no output %s", outputs[i].name ? outputs[i].name : "NULL");
    if (outputs[i].data && !work->outputs[place]) work->outputs[place] = &outputs[i];
  }
  return AUTOPIPE_OK;
}

static int do_overlap(const autopipe_tensor *one, const autopipe_tensor *other) {
  uintptr_t start = (uintptr_t)one->data, other_start = (uintptr_t)other->data;
  return start < other_start + other->bytes && other_start < start + one->bytes;
}

/* Whether kernels can write to an output of the caller: it is aligned, large enough, and shared with nothing. */
static int is_destination(const description *about, const job *work, int place) {
  const port *of = &about->outputs[place];
  const autopipe_tensor *to = work->outputs[place];
  size_t bytes = autopipe_dtype_bytes(of->dtype);
  if (!to || (uintptr_t)to->data % ALIGNMENT) return 0;
  for (int axis = 0; axis < of->rank; axis++) {
    if (of->is_dynamic[axis]) return 0;
    bytes *= (size_t)of->extents[axis].constant;
  }
  if (to->bytes < bytes) return 0;
  for (int i = 0; i < about->input_count; i++)
    if (work->inputs[i] && do_overlap(to, work->inputs[i])) return 0;
  for (int i = 0; i < place; i++)
    if (do_overlap(to, work->outputs[i])) return 0;
  return 1;
}

/* A call that may end early leaves outputs as they were, and a stream keeps some: these are copied. */
static int is_direct(const opened *model, const job *work) {
  int direct = model->of->instances->mains_into[work->library] && !model->is_stream && work->limit.milliseconds == AUTOPIPE_NO_LIMIT;
  for (int i = 0; i < model->of->parts.about.output_count && direct; i++) direct = is_destination(&model->of->parts.about, work, i);
  return direct;
}

static autopipe_status deliver(TVMFFIObject *result, autopipe_tensor *out, const port *of) {
  const DLTensor *from = tensor_of(result);
  size_t bytes = tensor_bytes(from);
  if (out->data && out->bytes < bytes)
    return fail(AUTOPIPE_INVALID_ARGUMENT, "output %s has %zu bytes, its buffer %zu", of->name, bytes, out->bytes);
  const char *data = (const char *)from->data + from->byte_offset;
  if (out->data) {
    if (bytes && out->data != data) memmove(out->data, data, bytes);
    out->owner = NULL;
  } else {
    tvm.ObjectIncRef(out->owner = result);
    out->data = (void *)data;
  }
  out->bytes = bytes, out->dtype = of->dtype, out->rank = from->ndim;
  memcpy(out->shape, from->shape, (size_t)from->ndim * sizeof *out->shape);
  return AUTOPIPE_OK;
}

static void keep_states(opened *model, job *work) {
  for (int i = 0; i < model->of->parts.about.input_count; i++) {
    int place = model->outputs_of_states[i];
    if (place < 0) continue;
    release_object(model->states[i]);
    tvm.ObjectIncRef(model->states[i] = work->results[place]);
  }
}

static autopipe_status run_in_turn(opened *model, job *work) {
  autopipe_status status = model->is_stream ? take_turn(model->of, &work->limit, &model->has_turn) : AUTOPIPE_OK;
  if (status) return status;
  status = run_job(model->of, work);
  if (!status && model->is_stream) keep_states(model, work);
  if (model->is_stream) end_turn(model->of, &model->has_turn);
  return status;
}

static autopipe_status run_checked(opened *model, job *work, autopipe_tensor *outputs, size_t count) {
  const description *about = &model->of->parts.about;
  autopipe_status status = run_in_turn(model, work);
  size_t done = 0;
  for (; done < count && !status; done++) {
    int place = find_port(about->outputs, about->output_count, outputs[done].name);
    status = deliver(work->results[place], &outputs[done], &about->outputs[place]);
  }
  for (size_t i = 0; status && i < done; i++) autopipe_release(&outputs[i]);
  for (int i = 0; i < about->output_count; i++) release_object(work->results[i]);
  return status;
}

autopipe_status autopipe_run(autopipe_model handle, const autopipe_tensor *inputs, size_t input_count,
                             autopipe_tensor *outputs, size_t output_count, int64_t limit_ms) {
  opened *model = borrow(handle);
  if (!model) return AUTOPIPE_INVALID_HANDLE;
  job work = {.limit = make_limit(limit_ms, &model->cancels), .states = model->states};
  autopipe_status status = AUTOPIPE_OK;
  if ((input_count && !inputs) || (output_count && !outputs)) status = fail(AUTOPIPE_INVALID_ARGUMENT, "inputs or outputs are NULL");
  if (limit_ms < AUTOPIPE_UNTIL_CANCELLED) status = fail(AUTOPIPE_INVALID_ARGUMENT, "a limit of %lld ms", (long long)limit_ms);
  if (!status) status = place_inputs(model, inputs, input_count, &work);
  if (!status) status = place_outputs(model, outputs, output_count, &work);
  if (!status) {
    work.is_direct = is_direct(model, &work);
    work.library = choose_library(&model->of->parts.about, work.sizes);
    status = run_checked(model, &work, outputs, output_count);
  }
  return give_back(model, status);
}

autopipe_status autopipe_cancel(autopipe_model handle) {
  opened *model = borrow(handle);
  if (!model) return AUTOPIPE_INVALID_HANDLE;
  atomic_fetch_add(&model->cancels, 1);
  wake_calls(model->of);
  return give_back(model, AUTOPIPE_OK);
}

void autopipe_release(autopipe_tensor *output) {
  if (!output || !output->owner) return;
  release_object(output->owner);
  output->owner = output->data = NULL;
  output->bytes = 0;
}

static autopipe_status bind_state(opened *stream, const autopipe_state *state) {
  const description *about = &stream->of->parts.about;
  int input = find_port(about->inputs, about->input_count, state->input);
  int output = find_port(about->outputs, about->output_count, state->output);
  if (input < 0) return fail(AUTOPIPE_INVALID_ARGUMENT, "the model has no input %s", state->input ? state->input : "NULL");
  if (output < 0) return fail(AUTOPIPE_INVALID_ARGUMENT, "the model has no output %s", state->output ? state->output : "NULL");
  const port *in = &about->inputs[input], *out = &about->outputs[output];
  int fits = in->dtype == out->dtype && in->rank == out->rank;
  for (int axis = 0; fits && axis < in->rank; axis++)
    fits = !in->is_dynamic[axis] && !out->is_dynamic[axis] && in->extents[axis].constant == out->extents[axis].constant;
  if (!fits) return fail(AUTOPIPE_INVALID_ARGUMENT, "output %s cannot become input %s: another dtype or shape, or a dynamic one", out->name, in->name);
  if (stream->outputs_of_states[input] >= 0) return fail(AUTOPIPE_INVALID_ARGUMENT, "input %s takes two states", in->name);
  stream->outputs_of_states[input] = output;
  stream->is_state_output[output] = 1;
  return AUTOPIPE_OK;
}

autopipe_status autopipe_open_stream(autopipe_model handle, const autopipe_state *states, size_t count, autopipe_model *stream) {
  opened *model = borrow(handle), *made;
  if (!model) return AUTOPIPE_INVALID_HANDLE;
  if (!stream || !states || !count || model->is_stream)
    return give_back(model, fail(AUTOPIPE_INVALID_ARGUMENT, "a stream takes states, and is made of a model that has none"));
  pthread_mutex_lock(&table);
  model->of->users++;
  pthread_mutex_unlock(&table);
  autopipe_status status = add_handle(model->of, &made, stream);
  if (status) {
    pthread_mutex_lock(&table);
    model->of->users--;
    pthread_mutex_unlock(&table);
    return give_back(model, status);
  }
  made->is_stream = 1;
  for (size_t i = 0; i < count && !status; i++) status = bind_state(made, &states[i]);
  if (status) {
    char reason[1024];
    snprintf(reason, sizeof reason, "%s", autopipe_last_error());
    autopipe_close(*stream);
    *stream = 0;
    fail(status, "%s", reason);
  }
  return give_back(model, status);
}

autopipe_status autopipe_reset(autopipe_model stream) {
  opened *model = borrow(stream);
  if (!model) return AUTOPIPE_INVALID_HANDLE;
  if (!model->is_stream) return give_back(model, fail(AUTOPIPE_INVALID_ARGUMENT, "the model is no stream, it has no states"));
  call_limit none = make_limit(AUTOPIPE_NO_LIMIT, NULL);
  take_turn(model->of, &none, &model->has_turn);
  for (int i = 0; i < MAX_PORTS; i++) {
    release_object(model->states[i]);
    model->states[i] = NULL;
  }
  end_turn(model->of, &model->has_turn);
  return give_back(model, AUTOPIPE_OK);
}
