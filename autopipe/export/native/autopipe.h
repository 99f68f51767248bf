/* Runs a model that autopipe compiled. C11; nothing throws, everything that can fail returns a status.
 *
 *   autopipe_model model;
 *   if (autopipe_open("squeezenet", NULL, &model) != AUTOPIPE_OK) puts(autopipe_last_error());
 *   autopipe_tensor image = {.name = "data_0", .data = pixels, .bytes = sizeof pixels};
 *   autopipe_tensor scores = {.name = "softmaxout_1", .data = buffer, .bytes = sizeof buffer};
 *   autopipe_run(model, &image, 1, &scores, 1, AUTOPIPE_NO_LIMIT);
 *   autopipe_close(model);
 *
 * Every function may be called from any thread. Needs Linux, glibc and libstdc++ as the file REQUIREMENTS of
 * the exported folder states. Strings are UTF-8.
 */
#ifndef AUTOPIPE_H
#define AUTOPIPE_H

#include <stddef.h>
#include <stdint.h>

#define AUTOPIPE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef enum autopipe_status {
  AUTOPIPE_OK = 0,
  AUTOPIPE_INVALID_ARGUMENT = 1, /* a name, dtype or shape that is not the model's; a size out of range */
  AUTOPIPE_INVALID_HANDLE = 2,   /* closed, or never opened */
  AUTOPIPE_INVALID_FILE = 3,     /* missing, damaged, or of another format, as a library of the TVM runtime may be */
  AUTOPIPE_UNSUPPORTED = 4,      /* the processor lacks a feature, or another TVM runtime is loaded */
  AUTOPIPE_OUT_OF_MEMORY = 5,
  AUTOPIPE_FAILED = 6,           /* the compiled model reported an error */
  AUTOPIPE_TIMEOUT = 7,          /* the call did not end within its limit */
  AUTOPIPE_CANCELLED = 8         /* autopipe_cancel ended the call */
} autopipe_status;

typedef enum autopipe_dtype {
  AUTOPIPE_BOOL = 1, AUTOPIPE_INT8, AUTOPIPE_INT16, AUTOPIPE_INT32, AUTOPIPE_INT64,
  AUTOPIPE_UINT8, AUTOPIPE_UINT16, AUTOPIPE_UINT32, AUTOPIPE_UINT64,
  AUTOPIPE_FLOAT16, AUTOPIPE_FLOAT32, AUTOPIPE_FLOAT64
} autopipe_dtype;

enum { AUTOPIPE_MAX_RANK = 16, AUTOPIPE_NO_LIMIT = -1, AUTOPIPE_UNTIL_CANCELLED = -2 };

/* An open model; 0 is never one. A closed handle stays invalid and is reported as such. */
typedef uint64_t autopipe_model;

typedef struct autopipe_options {
  size_t size;        /* sizeof(autopipe_options) */
  int threads;        /* of each instance; 0: as many as the model was tuned for, at most its share of the cores */
  int instances;      /* calls that run at the same time, each with working memory of its own; 0: 1 */
  int verify_digests; /* nonzero: compare every file with SHA256SUMS before anything is loaded */
  int copy_weights;   /* nonzero: weights in private memory with large pages; 0: mapped and shared */
} autopipe_options;

typedef struct autopipe_port {
  const char *name; /* valid until the model is closed */
  autopipe_dtype dtype;
  int rank;
  int64_t shape[AUTOPIPE_MAX_RANK];   /* elements; -1 for a dynamic dimension */
  int64_t minimum[AUTOPIPE_MAX_RANK]; /* smallest size of each dimension */
  int64_t maximum[AUTOPIPE_MAX_RANK]; /* largest; of a dynamic one of outputs 0 where nothing bounds it before a call */
  int64_t multiple[AUTOPIPE_MAX_RANK];
} autopipe_port;

/* A dense array in C order. Of an input, `name`, `data` and `bytes` have to be set, and of one with dynamic
 * dimensions `rank` and `shape`; elsewhere rank 0 and shape 0 mean those of the model. dtype 0 means the model's.
 * Inputs that begin at a multiple of 64 bytes are read in place, others are copied.
 *
 * Of an output, `name` has to be set. With `data` and `bytes` the result is written there, and `bytes` becomes its size:
 * by the kernels where outputs are large, of fixed shapes, all asked for, at a multiple of 64 bytes and apart from each
 * other and from the inputs, and the call has no limit; by a copy elsewhere. A call that ends with AUTOPIPE_FAILED may
 * have written a part. With `data` NULL, `data` becomes the result itself: call autopipe_release(&tensor) when it is no
 * longer needed.
 */
typedef struct autopipe_tensor {
  const char *name;
  autopipe_dtype dtype;
  int rank;
  int64_t shape[AUTOPIPE_MAX_RANK];
  void *data;
  size_t bytes;
  void *owner; /* of the library; NULL where the caller owns `data` */
} autopipe_tensor;

/* An input that takes what an output returned in the call before. */
typedef struct autopipe_state {
  const char *input;
  const char *output;
} autopipe_state;

/* The reason why the last call of this thread failed, one line; "" if it did not. */
AUTOPIPE_API const char *autopipe_last_error(void);

/* Opens an exported folder. `options` may be NULL. */
AUTOPIPE_API autopipe_status autopipe_open(const char *folder, const autopipe_options *options, autopipe_model *model);

/* Ends a model; waits for its running calls. */
AUTOPIPE_API autopipe_status autopipe_close(autopipe_model model);

AUTOPIPE_API autopipe_status autopipe_input_count(autopipe_model model, size_t *count);
AUTOPIPE_API autopipe_status autopipe_output_count(autopipe_model model, size_t *count);
AUTOPIPE_API autopipe_status autopipe_input(autopipe_model model, size_t index, autopipe_port *port);
AUTOPIPE_API autopipe_status autopipe_output(autopipe_model model, size_t index, autopipe_port *port);

/* Threads of an instance, and instances, of an open model. */
AUTOPIPE_API autopipe_status autopipe_concurrency(autopipe_model model, int *threads, int *instances);

/* LLVM's name of the processor that the loaded build is for, such as "x86-64-v4"; valid until the model is closed. */
AUTOPIPE_API autopipe_status autopipe_processor(autopipe_model model, const char **name);

/* Runs once. All inputs have to be there; outputs that are not asked for are dropped.
 *
 * `limit_ms` bounds the call from here on, while it waits for a free instance and while it runs: milliseconds, or
 * AUTOPIPE_UNTIL_CANCELLED. A call that is late or cancelled ends before its next kernel with AUTOPIPE_TIMEOUT or
 * AUTOPIPE_CANCELLED; outputs and states stay as they were, and the model stays usable. A call with AUTOPIPE_NO_LIMIT
 * can be cancelled while it waits only; other calls take about 0.3 us longer for each kernel. */
AUTOPIPE_API autopipe_status autopipe_run(autopipe_model model, const autopipe_tensor *inputs, size_t input_count,
                                          autopipe_tensor *outputs, size_t output_count, int64_t limit_ms);

/* Ends the calls of a model, or of a stream, that wait or run; its later calls run. Does not wait for them. */
AUTOPIPE_API autopipe_status autopipe_cancel(autopipe_model model);

/* Frees what autopipe_run left in an output with `data` NULL; does nothing for others. */
AUTOPIPE_API void autopipe_release(autopipe_tensor *output);

/* A second handle of the same model that keeps states between its calls: they begin as zeros, and are neither inputs
 * nor outputs of that handle. Its calls take turns. Close it as any other; the model may be closed before. */
AUTOPIPE_API autopipe_status autopipe_open_stream(autopipe_model model, const autopipe_state *states, size_t count,
                                                  autopipe_model *stream);

/* Makes the states of a stream zeros; AUTOPIPE_INVALID_ARGUMENT for what is none. */
AUTOPIPE_API autopipe_status autopipe_reset(autopipe_model stream);

/* Bytes of an element; 0 for what is no dtype. */
AUTOPIPE_API size_t autopipe_dtype_bytes(autopipe_dtype dtype);

/* The name of a dtype as NumPy has it, such as "float32"; "?" for what is none. */
AUTOPIPE_API const char *autopipe_dtype_name(autopipe_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
