/* The program `run`: runs a folder from the command line, measures it, and checks it against its cases. */
#ifndef AUTOPIPE_RUN_H
#define AUTOPIPE_RUN_H

#include "autopipe.h"

enum { MAX_INPUTS = 256, MAX_SIZES = 16 };

typedef struct request {
  char folder[4096];
  autopipe_options options;
  const char *inputs[MAX_INPUTS]; /* [NAME=]FILE.npy */
  int input_count;
  const char *output; /* folder for .npy files; NULL for none */
  const char *sizes[MAX_SIZES]; /* NAME=SIZE,... of a bench */
  int size_count;
  int turn; /* which of the sizes of each list */
  double seconds, warmup;
  int callers;
  int prints_json;
} request;

/* What the inputs of a call are, in memory of their own. */
typedef struct arrays {
  autopipe_tensor items[MAX_INPUTS];
  size_t count;
} arrays;

/* Prints "error: ..." and returns the exit code: 2 for a wrong request, 3 for a file, 4 for a processor, 1 otherwise. */
int complain(autopipe_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

int describe(autopipe_model model, const request *asked);
int infer(autopipe_model model, const request *asked);
int bench(autopipe_model model, const request *asked);
int self_test(autopipe_model model, const request *asked);

/* Reads the files of `asked`, each under the name of an input. */
int read_inputs(autopipe_model model, const request *asked, arrays *out);

/* Makes inputs for a bench: the files that are given, and zeros of the sizes asked for. */
int make_inputs(autopipe_model model, const request *asked, arrays *out);

/* Fills in the outputs of a model, to be allocated by a run. */
int list_outputs(autopipe_model model, arrays *out);

void free_arrays(arrays *of);

#endif
