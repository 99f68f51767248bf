/* `run --self-test`: the cases that the folder carries, each compared element by element:
 * |ours - expected| <= atol + rtol * |expected|, not-a-numbers where they are expected, integers and bools equal.
 *
 * cases/cases.txt: lines `case NAME`, `input NAME FILE`, `output NAME FILE RTOL ATOL`, names percent-encoded. */
#define _GNU_SOURCE
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"
#include "run.h"

typedef struct test_case {
  char name[256];
  arrays inputs, expected;
  double rtol[MAX_INPUTS], atol[MAX_INPUTS];
  char names[2 * MAX_INPUTS][256];
} test_case;

static double half_to_double(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  return bits >> 15 ? -value : value;
}

static double element(const autopipe_tensor *of, size_t at) {
  const void *data = of->data;
  switch (of->dtype) {
    case AUTOPIPE_FLOAT16: return half_to_double(((const uint16_t *)data)[at]);
    case AUTOPIPE_FLOAT32: return ((const float *)data)[at];
    case AUTOPIPE_FLOAT64: return ((const double *)data)[at];
    default: return 0;
  }
}

static int is_float(autopipe_dtype dtype) { return dtype >= AUTOPIPE_FLOAT16; }

/* Returns by how much of the allowed error an output differs at most; above 1 is wrong. */
static double compare(const autopipe_tensor *ours, const autopipe_tensor *expected, double rtol, double atol) {
  if (ours->dtype != expected->dtype || ours->rank != expected->rank || ours->bytes != expected->bytes ||
      memcmp(ours->shape, expected->shape, (size_t)ours->rank * sizeof *ours->shape))
    return INFINITY;
  if (!is_float(ours->dtype)) return memcmp(ours->data, expected->data, ours->bytes) ? INFINITY : 0;
  double most = 0;
  size_t count = ours->bytes / autopipe_dtype_bytes(ours->dtype);
  for (size_t i = 0; i < count; i++) {
    double a = element(ours, i), b = element(expected, i);
    if (a == b || (isnan(a) && isnan(b))) continue;
    double allowed = atol + rtol * fabs(b), part = fabs(a - b) / allowed;
    if (!(part <= most)) most = isnan(part) ? INFINITY : part;
  }
  return most;
}

static void decode(const char *word, char out[256]) {
  size_t at = 0;
  for (; *word && at < 255; word++) {
    char digits[3] = {0};
    if (*word == '%') memcpy(digits, word + 1, strnlen(word + 1, 2));
    if (isxdigit((unsigned char)digits[0]) && isxdigit((unsigned char)digits[1])) out[at++] = (char)strtol(digits, NULL, 16), word += 2;
    else out[at++] = *word;
  }
  out[at] = 0;
}

static int run_case(autopipe_model model, test_case *test, int *failed) {
  static arrays outputs;
  outputs.count = test->expected.count;
  for (size_t i = 0; i < outputs.count; i++) outputs.items[i] = (autopipe_tensor){.name = test->expected.items[i].name};
  autopipe_status status = autopipe_run(model, test->inputs.items, test->inputs.count, outputs.items, outputs.count, AUTOPIPE_NO_LIMIT);
  if (status) return complain(status, "case %s: %s", test->name, autopipe_last_error());
  double most = 0;
  for (size_t i = 0; i < outputs.count; i++) {
    double part = compare(&outputs.items[i], &test->expected.items[i], test->rtol[i], test->atol[i]);
    if (part > most) most = part;
    if (part > 1) printf("case %s: output %s is wrong\n", test->name, outputs.items[i].name);
  }
  if (most <= 1) printf("case %s: right, %.2f%% of the allowed error\n", test->name, 100 * most);
  *failed += most > 1;
  free_arrays(&outputs);
  return 0;
}

static int add_array(const request *asked, test_case *test, arrays *to, char *name, char *file) {
  char path[8192];
  if (to->count == MAX_INPUTS || strchr(file, '/')) return complain(AUTOPIPE_INVALID_FILE, "cases/cases.txt is damaged");
  autopipe_tensor *item = &to->items[to->count];
  char *kept = test->names[to->count + (to == &test->expected ? MAX_INPUTS : 0)];
  decode(name, kept);
  *item = (autopipe_tensor){.name = kept};
  snprintf(path, sizeof path, "%s/cases/%s", asked->folder, file);
  const char *wrong = read_npy(path, item);
  if (wrong) return complain(AUTOPIPE_INVALID_FILE, "%s: %s", path, wrong);
  to->count++;
  return 0;
}

static int end_case(autopipe_model model, test_case *test, int *done, int *failed) {
  if (!test->name[0]) return 0;
  int code = run_case(model, test, failed);
  free_arrays(&test->inputs);
  free_arrays(&test->expected);
  test->name[0] = 0;
  ++*done;
  return code;
}

static int read_line(autopipe_model model, const request *asked, test_case *test, char *line, int *done, int *failed) {
  char kind[16], name[800], file[256];
  double rtol = 0, atol = 0;
  int words = sscanf(line, "%15s %799s %255s %lf %lf", kind, name, file, &rtol, &atol);
  if (words == 2 && !strcmp(kind, "case")) {
    int code = end_case(model, test, done, failed);
    decode(name, test->name);
    return code;
  }
  if (words == 3 && !strcmp(kind, "input")) return add_array(asked, test, &test->inputs, name, file);
  if (words != 5 || strcmp(kind, "output")) return complain(AUTOPIPE_INVALID_FILE, "cases/cases.txt is damaged");
  int code = add_array(asked, test, &test->expected, name, file);
  if (!code) test->rtol[test->expected.count - 1] = rtol, test->atol[test->expected.count - 1] = atol;
  return code;
}

int self_test(autopipe_model model, const request *asked) {
  static test_case test;
  char path[8192], line[2048];
  int done = 0, failed = 0, code = 0;
  snprintf(path, sizeof path, "%s/cases/cases.txt", asked->folder);
  FILE *file = fopen(path, "re");
  if (!file) return complain(AUTOPIPE_INVALID_FILE, "%s cannot be read", path);
  while (!code && fgets(line, sizeof line, file)) code = read_line(model, asked, &test, line, &done, &failed);
  fclose(file);
  if (!code) code = end_case(model, &test, &done, &failed);
  if (code) return code;
  if (!done) return complain(AUTOPIPE_INVALID_FILE, "%s has no case", path);
  printf("%d of %d cases right\n", done - failed, done);
  return failed ? 1 : 0;
}
