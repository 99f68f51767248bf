#include "instance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"

enum { ALIGNMENT = 64, IS_BEFORE = 2 };

int64_t size_at(const extent *of, const int64_t *sizes) {
  int64_t size = of->constant;
  for (int i = 0; i < of->count; i++) size += sizes[of->dimensions[i]];
  return size;
}

/* Has a library compare stored weights with what it takes, and return an array of them as its kernels take them. */
static autopipe_status prepare_weights(instance *on, int place, TVMFFIAny *stored, int count, TVMFFIAny *prepared) {
  TVMFFIObject *prepare = NULL;
  autopipe_status status = get_function(on->machines[place], "prepare_weights", &prepare);
  if (status || !prepare) return status;
  if (tvm.FunctionCall(prepare, stored, count, prepared)) status = fail_with_raised(AUTOPIPE_INVALID_FILE, "the library takes other weights");
  release_object(prepare);
  return status;
}

/* Puts the weights of a library behind its inputs; the first instance prepares them for all. */
static autopipe_status set_weights(model_parts *of, instance *on, int place, int is_first, TVMFFIAny *arguments) {
  const library *takes = &of->about.libraries[place];
  TVMFFIAny *prepared = &of->prepared[place];
  autopipe_status status = AUTOPIPE_OK;
  for (size_t i = 0; i < takes->weight_count; i++) arguments[i] = as_argument(of->weights[takes->weights[i]]);
  if (is_first) status = prepare_weights(on, place, arguments, (int)takes->weight_count, prepared);
  if (status || prepared->type_index == kTVMFFINone) return status;
  size_t count = 0;
  const TVMFFIAny *items = array_items(prepared, &count);
  if (!items || count != takes->weight_count) return fail(AUTOPIPE_INVALID_FILE, "prepare_weights returned something else than weights");
  for (size_t i = 0; i < count; i++) {
    if (items[i].type_index != kTVMFFITensor) return fail(AUTOPIPE_INVALID_FILE, "prepare_weights returned no tensor");
    arguments[i] = items[i];
  }
  return AUTOPIPE_OK;
}

/* Ends a call before its next kernel where it is late or cancelled: the error unwinds the machine. */
static int stop_late(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result) {
  (void)result;
  instance *on = self;
  int is_before = count > IS_BEFORE && arguments[IS_BEFORE].v_int64;
  if (!is_before || !(on->running->status = check_limit(&on->running->limit))) return 0;
  tvm.ErrorSetRaisedFromCStr("RuntimeError", "the call ends");
  return -1;
}

/* Calls without a limit pay nothing for those that have one. */
static autopipe_status set_stop(instance *on, int place, int wanted) {
  if (on->has_stop[place] == wanted) return AUTOPIPE_OK;
  autopipe_status status = set_instrument(on->machines[place], wanted ? on->stop_late : NULL);
  if (!status) on->has_stop[place] = wanted;
  return status;
}

static autopipe_status prepare_library(model_parts *of, instance *on, int place, int is_first) {
  const library *takes = &of->about.libraries[place];
  size_t first = (size_t)of->about.input_count + (of->about.dimension_count > 0);
  on->arguments[place] = calloc(first + takes->weight_count + (size_t)of->about.output_count + 1, sizeof(TVMFFIAny));
  if (!on->arguments[place]) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for an instance");
  autopipe_status status = load_machine(of->libraries[place], &on->machines[place]);
  if (!status) status = get_function(on->machines[place], "main", &on->mains[place]);
  if (!status && !on->mains[place]) status = fail(AUTOPIPE_INVALID_FILE, "%s has no main", takes->file);
  if (!status) status = get_function(on->machines[place], "main_into", &on->mains_into[place]);
  return status ? status : set_weights(of, on, place, is_first, on->arguments[place] + first);
}

static size_t bytes_of_input(const model_parts *of, int place, const int64_t *sizes) {
  const port *about = &of->about.inputs[place];
  size_t bytes = autopipe_dtype_bytes(about->dtype);
  for (int axis = 0; axis < about->rank; axis++) bytes *= (size_t)size_at(&about->extents[axis], sizes);
  return bytes;
}

/* The address of an input that is aligned: its own, or that of a copy. */
static void *aligned_input(instance *on, int place, const autopipe_tensor *given, size_t bytes) {
  if (given && (uintptr_t)given->data % ALIGNMENT == 0) return given->data;
  if (on->scratch_bytes[place] < bytes || !on->scratch[place]) {
    free(on->scratch[place]);
    size_t room = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    on->scratch[place] = aligned_alloc(ALIGNMENT, room);
    on->scratch_bytes[place] = on->scratch[place] ? room : 0;
    if (!on->scratch[place]) return NULL;
  }
  if (given) memcpy(on->scratch[place], given->data, bytes);
  else memset(on->scratch[place], 0, bytes);
  return on->scratch[place];
}

static autopipe_status fill_inputs(instance *on, const job *work, TVMFFIAny *arguments) {
  const model_parts *of = on->of;
  for (int i = 0; i < of->about.input_count; i++) {
    const port *about = &of->about.inputs[i];
    int64_t shape[AUTOPIPE_MAX_RANK];
    TVMFFIObject *tensor = work->states[i];
    if (tensor) {
      tvm.ObjectIncRef(tensor);
    } else {
      void *data = aligned_input(on, i, work->inputs[i], bytes_of_input(of, i, work->sizes));
      if (!data) return fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for a copy of input %s", about->name);
      for (int axis = 0; axis < about->rank; axis++) shape[axis] = size_at(&about->extents[axis], work->sizes);
      autopipe_status status = share_tensor(data, to_dl_dtype(about->dtype), about->rank, shape, &tensor);
      if (status) return status;
    }
    arguments[i] = as_argument(tensor);
  }
  if (!of->about.dimension_count) return AUTOPIPE_OK;
  int64_t steps[MAX_DIMENSIONS];
  TVMFFIObject *shape;
  for (int i = 0; i < of->about.dimension_count; i++) steps[i] = work->sizes[i] / of->about.dimensions[i].multiple;
  autopipe_status status = make_shape(steps, of->about.dimension_count, &shape);
  if (!status) arguments[of->about.input_count] = as_argument(shape);
  return status;
}

/* Has kernels write to the outputs of the caller, whose shapes are fixed. */
static autopipe_status fill_outputs(const model_parts *of, const job *work, TVMFFIAny *arguments) {
  for (int i = 0; i < of->about.output_count; i++) {
    const port *about = &of->about.outputs[i];
    int64_t shape[AUTOPIPE_MAX_RANK];
    TVMFFIObject *tensor;
    for (int axis = 0; axis < about->rank; axis++) shape[axis] = about->extents[axis].constant;
    autopipe_status status = share_tensor(work->outputs[i]->data, to_dl_dtype(about->dtype), about->rank, shape, &tensor);
    if (status) return status;
    arguments[i] = as_argument(tensor);
  }
  return AUTOPIPE_OK;
}

/* Whether a result lies in memory that is not its own: an input of the caller, a copy of one, or a weight. */
static int is_borrowed(const TVMFFIAny *arguments, int count, const void *data) {
  for (int i = 0; i < count; i++)
    if (arguments[i].type_index == kTVMFFITensor && tensor_of(arguments[i].v_obj)->data == data) return 1;
  return 0;
}

/* Whether a result has the dtype and shape that model.txt states, by which callers read it. */
static int is_stated(const port *about, const DLTensor *result) {
  DLDataType stated = to_dl_dtype(about->dtype);
  int fits = !memcmp(&stated, &result->dtype, sizeof stated) && result->ndim == about->rank;
  for (int axis = 0; fits && axis < about->rank; axis++)
    fits = about->is_dynamic[axis] || result->shape[axis] == about->extents[axis].constant;
  return fits;
}

static autopipe_status take_result(const instance *on, const job *work, int place, TVMFFIObject *tensor, TVMFFIObject **out) {
  const model_parts *of = on->of;
  const port *about = &of->about.outputs[place];
  if (!is_stated(about, tensor_of(tensor))) return fail(AUTOPIPE_FAILED, "output %s has another dtype or shape than model.txt states", about->name);
  int count = of->about.input_count + (of->about.dimension_count > 0) + (int)of->about.libraries[work->library].weight_count;
  if (is_borrowed(on->arguments[work->library], count, tensor_of(tensor)->data)) return copy_tensor(tensor, out);
  tvm.ObjectIncRef(*out = tensor);
  return AUTOPIPE_OK;
}

static autopipe_status take_results(const instance *on, job *work, const TVMFFIAny *result) {
  int count = on->of->about.output_count;
  if (result->type_index == kTVMFFITensor && count == 1) return take_result(on, work, 0, result->v_obj, &work->results[0]);
  size_t returned = 0;
  const TVMFFIAny *items = array_items(result, &returned);
  if (!items || returned != (size_t)count) return fail(AUTOPIPE_FAILED, "the compiled model returned something else than its outputs");
  for (int i = 0; i < count; i++) {
    if (items[i].type_index != kTVMFFITensor) return fail(AUTOPIPE_FAILED, "the compiled model returned no tensor for output %d", i);
    autopipe_status status = take_result(on, work, i, items[i].v_obj, &work->results[i]);
    if (status) return status;
  }
  return AUTOPIPE_OK;
}

/* Runs in the thread whose pool the kernels use. */
static void execute(instance *on, job *work) {
  const model_parts *of = on->of;
  TVMFFIAny *arguments = on->arguments[work->library];
  TVMFFIObject *function = on->mains[work->library];
  int filled = of->about.input_count + (of->about.dimension_count > 0);
  int count = filled + (int)of->about.libraries[work->library].weight_count, outputs = 0;
  memset(arguments, 0, (size_t)filled * sizeof *arguments);
  int has_all;
  work->status = use_threads(of->threads, &has_all);
  if (!work->status) work->status = set_stop(on, work->library, work->limit.milliseconds != AUTOPIPE_NO_LIMIT);
  if (!work->status) work->status = fill_inputs(on, work, arguments);
  if (!work->status && work->is_direct) {
    function = on->mains_into[work->library], outputs = of->about.output_count;
    work->status = fill_outputs(of, work, arguments + count);
  }
  if (!work->status) {
    TVMFFIAny result = {0};
    on->running = work;
    if (!tvm.FunctionCall(function, arguments, count + outputs, &result))
      work->status = take_results(on, work, &result);
    else if (work->status)
      drop_raised();
    else
      work->status = fail_with_raised(AUTOPIPE_FAILED, "the compiled model failed");
    release_any(&result);
  }
  for (int i = 0; i < filled; i++) release_any(&arguments[i]);
  for (int i = count; i < count + outputs; i++) release_any(&arguments[i]);
  if (work->status) snprintf(work->message, sizeof work->message, "%s", autopipe_last_error());
}

static void *serve(void *of) {
  instance *on = of;
  pthread_mutex_lock(&on->lock);
  while (!on->stops) {
    if (!on->work) {
      pthread_cond_wait(&on->wake, &on->lock);
      continue;
    }
    job *work = on->work;
    pthread_mutex_unlock(&on->lock);
    execute(on, work);
    pthread_mutex_lock(&on->lock);
    on->work = NULL;
    pthread_cond_signal(&on->done);
  }
  pthread_mutex_unlock(&on->lock);
  return NULL;
}

static void hand_over(instance *on, job *work) {
  pthread_mutex_lock(&on->lock);
  on->work = work;
  pthread_cond_signal(&on->wake);
  while (on->work) pthread_cond_wait(&on->done, &on->lock);
  pthread_mutex_unlock(&on->lock);
}

static autopipe_status start_thread(instance *on) {
  pthread_mutex_init(&on->lock, NULL);
  pthread_cond_init(&on->wake, NULL);
  pthread_cond_init(&on->done, NULL);
  on->process = getpid();
  on->has_thread = pthread_create(&on->thread, NULL, serve, on) == 0;
  return on->has_thread ? AUTOPIPE_OK : fail(AUTOPIPE_OUT_OF_MEMORY, "no thread can be started");
}

static uint64_t own_number(void) {
  static atomic_uint_fast64_t last;
  static _Thread_local uint64_t own;
  if (!own) own = atomic_fetch_add(&last, 1) + 1;
  return own;
}

/* Whether the calling thread runs the kernels itself. */
static int is_owner(instance *on) {
  if (on->of->threads == 1) return 1; /* no pool */
  if (on->has_thread) return 0;
  int has_all = 0;
  if (!on->owner && !use_threads(on->of->threads, &has_all) && has_all) on->owner = own_number(), on->process = getpid();
  return on->owner == own_number() && on->process == getpid();
}

void run_on(instance *on, job *work) {
  if (is_owner(on)) {
    execute(on, work);
  } else if ((on->has_thread && on->process == getpid()) || !(work->status = start_thread(on))) {
    hand_over(on, work);
  } else {
    snprintf(work->message, sizeof work->message, "%s", autopipe_last_error());
  }
}

autopipe_status start_instance(model_parts *of, instance *on, int is_first) {
  on->of = of;
  for (int i = 0; i < of->about.library_count; i++) {
    autopipe_status status = prepare_library(of, on, i, is_first);
    if (status) return status;
  }
  if (tvm.FunctionCreate(on, stop_late, NULL, (TVMFFIObjectHandle *)&on->stop_late))
    return fail_with_raised(AUTOPIPE_OUT_OF_MEMORY, "an instance");
  return AUTOPIPE_OK;
}

static void stop_thread(instance *on) {
  pthread_mutex_lock(&on->lock);
  on->stops = 1;
  pthread_cond_signal(&on->wake);
  pthread_mutex_unlock(&on->lock);
  pthread_join(on->thread, NULL);
  pthread_cond_destroy(&on->wake);
  pthread_cond_destroy(&on->done);
  pthread_mutex_destroy(&on->lock);
}

void stop_instance(instance *on) {
  const model_parts *of = on->of;
  if (!of) return;
  if (on->has_thread && on->process == getpid()) stop_thread(on);
  for (int i = 0; i < of->about.library_count; i++) {
    release_object(on->mains[i]);
    release_object(on->mains_into[i]);
    release_object(on->machines[i]);
    free(on->arguments[i]);
  }
  release_object(on->stop_late);
  for (int i = 0; i < of->about.input_count; i++) free(on->scratch[i]);
}
