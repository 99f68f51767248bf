#define _GNU_SOURCE
#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST_HEADER = 1 << 16, ALIGNMENT = 64 };
static const struct { const char *code; autopipe_dtype dtype; } CODES[] = {
    {"|b1", AUTOPIPE_BOOL},    {"|i1", AUTOPIPE_INT8},    {"<i2", AUTOPIPE_INT16},   {"<i4", AUTOPIPE_INT32},
    {"<i8", AUTOPIPE_INT64},   {"|u1", AUTOPIPE_UINT8},   {"<u2", AUTOPIPE_UINT16},  {"<u4", AUTOPIPE_UINT32},
    {"<u8", AUTOPIPE_UINT64},  {"<f2", AUTOPIPE_FLOAT16}, {"<f4", AUTOPIPE_FLOAT32}, {"<f8", AUTOPIPE_FLOAT64},
};
enum { CODE_COUNT = sizeof CODES / sizeof *CODES };

/* The text behind a key of the header. */
static const char *value_of(const char *header, const char *key) {
  const char *at = strstr(header, key);
  if (!at) return NULL;
  at += strlen(key);
  while (*at == ' ' || *at == ':') at++;
  return at;
}

static const char *read_shape(const char *at, autopipe_tensor *out, size_t *bytes) {
  if (!at || *at++ != '(') return "its header has no shape";
  for (out->rank = 0;;) {
    while (*at == ' ' || *at == ',') at++;
    if (*at == ')') return NULL;
    char *end;
    long long size = strtoll(at, &end, 10);
    if (end == at || size < 0 || out->rank == AUTOPIPE_MAX_RANK) return "its shape is none";
    if (__builtin_mul_overflow(*bytes, (size_t)size, bytes)) return "it is too large";
    out->shape[out->rank++] = size;
    at = end;
  }
}

static const char *read_header(FILE *file, autopipe_tensor *out, size_t *bytes) {
  unsigned char start[12] = {0};
  if (fread(start, 1, 8, file) != 8 || memcmp(start, "\x93NUMPY", 6) || start[6] < 1 || start[6] > 3) return "not a .npy file";
  size_t width = start[6] == 1 ? 2 : 4;
  if (fread(start + 8, 1, width, file) != width) return "not a .npy file";
  size_t length = start[8] | start[9] << 8 | (size_t)start[10] << 16 | (size_t)start[11] << 24;
  if (length > LONGEST_HEADER) return "its header is too long";
  char *header = calloc(1, length + 1);
  if (!header) return "no memory";
  const char *wrong = fread(header, 1, length, file) == length ? NULL : "not a .npy file";
  const char *code = value_of(header, "'descr'"), *order = value_of(header, "'fortran_order'");
  for (int i = 0; !wrong && code && i < CODE_COUNT; i++)
    if (!strncmp(code + 1, CODES[i].code, 3) && *code == '\'') out->dtype = CODES[i].dtype;
  if (!wrong && !out->dtype) wrong = "its dtype is none of a model's";
  if (!wrong && (!order || strncmp(order, "False", 5))) wrong = "it is not in C order";
  *bytes = autopipe_dtype_bytes(out->dtype);
  if (!wrong) wrong = read_shape(value_of(header, "'shape'"), out, bytes);
  free(header);
  return wrong;
}

const char *read_npy(const char *path, autopipe_tensor *out) {
  struct stat about;
  if (stat(path, &about)) return "there is no such file";
  if (!S_ISREG(about.st_mode)) return "not a regular file";
  FILE *file = fopen(path, "re");
  if (!file) return "it cannot be read";
  const char *wrong = read_header(file, out, &out->bytes);
  if (!wrong && (long long)out->bytes > (long long)about.st_size) wrong = "it ends too early";
  if (!wrong) {
    out->data = aligned_alloc(ALIGNMENT, (out->bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    if (!out->data) wrong = "no memory";
    else if (fread(out->data, 1, out->bytes, file) != out->bytes || fgetc(file) != EOF) wrong = "its size is not that of its shape";
  }
  fclose(file);
  if (wrong) free(out->data), out->data = NULL;
  return wrong;
}

const char *write_npy(const char *path, const autopipe_tensor *array) {
  char header[256 + 24 * AUTOPIPE_MAX_RANK];
  const char *code = "";
  for (int i = 0; i < CODE_COUNT; i++)
    if (CODES[i].dtype == array->dtype) code = CODES[i].code;
  int length = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", code);
  for (int axis = 0; axis < array->rank; axis++)
    length += snprintf(header + length, sizeof header - (size_t)length, axis ? " %lld," : "%lld,", (long long)array->shape[axis]);
  if (array->rank > 1) length--; /* (2, 3), and (2,) */
  length += snprintf(header + length, sizeof header - (size_t)length, "), }");
  int padding = ALIGNMENT - (10 + length + 1) % ALIGNMENT;
  unsigned whole = (unsigned)(length + padding + 1);
  unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)whole, (unsigned char)(whole >> 8)};
  FILE *file = fopen(path, "we");
  if (!file) return "it cannot be written";
  int fine = fwrite(start, 1, sizeof start, file) == sizeof start && fprintf(file, "%s%*s\n", header, padding, "") > 0 &&
             fwrite(array->data, 1, array->bytes, file) == array->bytes;
  return fclose(file) || !fine ? "it cannot be written" : NULL;
}
