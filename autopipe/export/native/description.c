#define _GNU_SOURCE
#include "description.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "files.h"
#include "processor.h"

enum { MAX_WORDS = 1024, LINE_BYTES = 16384, ALIGNMENT = 64 };
static const int64_t LARGEST = (int64_t)1 << 40; /* of a size; products are checked beside it */

typedef struct reader {
  description *out;
  char line[LINE_BYTES];
  char *words[MAX_WORDS];
  int count;
  size_t weights_size;
  char *flags; /* of the processor, with a space on either side */
} reader;

/* 0 in place of a dtype: of weights alone. */
static const struct { const char *name; autopipe_dtype dtype; DLDataType inner; } DTYPES[] = {
    {"bool", AUTOPIPE_BOOL, {kDLBool, 8, 1}},        {"int8", AUTOPIPE_INT8, {kDLInt, 8, 1}},
    {"int16", AUTOPIPE_INT16, {kDLInt, 16, 1}},      {"int32", AUTOPIPE_INT32, {kDLInt, 32, 1}},
    {"int64", AUTOPIPE_INT64, {kDLInt, 64, 1}},      {"uint8", AUTOPIPE_UINT8, {kDLUInt, 8, 1}},
    {"uint16", AUTOPIPE_UINT16, {kDLUInt, 16, 1}},   {"uint32", AUTOPIPE_UINT32, {kDLUInt, 32, 1}},
    {"uint64", AUTOPIPE_UINT64, {kDLUInt, 64, 1}},   {"float16", AUTOPIPE_FLOAT16, {kDLFloat, 16, 1}},
    {"float32", AUTOPIPE_FLOAT32, {kDLFloat, 32, 1}}, {"float64", AUTOPIPE_FLOAT64, {kDLFloat, 64, 1}},
    {"bfloat16", 0, {kDLBfloat, 16, 1}},
};
enum { DTYPE_COUNT = sizeof DTYPES / sizeof *DTYPES };

static int find_dtype(autopipe_dtype dtype) {
  for (int i = 0; dtype && i < DTYPE_COUNT; i++)
    if (DTYPES[i].dtype == dtype) return i;
  return -1;
}

size_t autopipe_dtype_bytes(autopipe_dtype dtype) { return find_dtype(dtype) < 0 ? 0 : DTYPES[find_dtype(dtype)].inner.bits / 8; }

const char *autopipe_dtype_name(autopipe_dtype dtype) { return find_dtype(dtype) < 0 ? "?" : DTYPES[find_dtype(dtype)].name; }

DLDataType to_dl_dtype(autopipe_dtype dtype) { return find_dtype(dtype) < 0 ? (DLDataType){0} : DTYPES[find_dtype(dtype)].inner; }

/* The place of a dtype in the table; -1 for none. */
static int read_dtype(const char *word) {
  for (int i = 0; i < DTYPE_COUNT; i++)
    if (!strcmp(DTYPES[i].name, word)) return i;
  return -1;
}

static int read_number(const char *word, int64_t least, int64_t most, int64_t *out) {
  char *end;
  errno = 0;
  long long value = strtoll(word, &end, 10);
  if (errno || end == word || *end || value < least || value > most) return 0;
  *out = value;
  return 1;
}

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

static int read_name(const char *word, char out[NAME_BYTES]) {
  size_t at = 0;
  for (; *word; word++) {
    if (at + 1 == NAME_BYTES) return 0;
    char c = *word;
    if (c == '%') {
      int high = hex_digit(word[1]), low = high < 0 ? -1 : hex_digit(word[2]);
      if (low < 0) return 0;
      c = (char)(high << 4 | low);
      word += 2;
      if (!c) return 0;
    }
    out[at++] = c;
  }
  out[at] = 0;
  return 1;
}

static int find_dimension(const description *of, const char *name, size_t length) {
  for (int i = 0; i < of->dimension_count; i++)
    if (strlen(of->dimensions[i].name) == length && !memcmp(of->dimensions[i].name, name, length)) return i;
  return -1;
}

static int read_extent(const description *of, const char *word, extent *out) {
  *out = (extent){0};
  for (const char *at = word;; at++) {
    size_t length = strcspn(at, "+");
    char term[NAME_BYTES];
    int64_t number;
    if (!length || length >= sizeof term) return 0;
    memcpy(term, at, length);
    term[length] = 0;
    int place = find_dimension(of, term, length);
    if (place >= 0) {
      if (out->count == MAX_TERMS) return 0;
      out->dimensions[out->count++] = place;
    } else if (!read_number(term, 0, LARGEST, &number) || (out->constant += number) > LARGEST) {
      return 0;
    }
    at += length;
    if (!*at) return 1;
  }
}

/* Reads smallest..largest. */
static int read_range(const char *word, extent *out) {
  const char *dots = strstr(word, "..");
  char least[NAME_BYTES];
  int64_t most;
  if (!dots || (size_t)(dots - word) >= sizeof least) return 0;
  memcpy(least, word, (size_t)(dots - word));
  least[dots - word] = 0;
  *out = (extent){0};
  if (!read_number(least, 0, LARGEST, &out->constant) || !read_number(dots + 2, out->constant, LARGEST, &most)) return 0;
  out->spread = most - out->constant;
  return 1;
}

static int read_port(reader *from, port *ports, int *count, int is_output) {
  if (*count == MAX_PORTS || from->count < 3 || from->count - 3 > AUTOPIPE_MAX_RANK) return 0;
  port *to = &ports[(*count)++];
  int dtype = read_dtype(from->words[2]);
  if (dtype < 0 || !read_name(from->words[1], to->name) || !(to->dtype = DTYPES[dtype].dtype)) return 0;
  to->rank = from->count - 3;
  for (int axis = 0; axis < to->rank; axis++) {
    const char *word = from->words[3 + axis];
    if (is_output && (!strcmp(word, "-1") || read_range(word, &to->extents[axis])))
      to->is_dynamic[axis] = 1;
    else if (!read_extent(from->out, word, &to->extents[axis]))
      return 0;
    else
      to->is_dynamic[axis] = to->extents[axis].count > 0;
  }
  return 1;
}

static int read_dimension(reader *from) {
  description *out = from->out;
  if (from->count != 5 || out->dimension_count == MAX_DIMENSIONS) return 0;
  dimension *to = &out->dimensions[out->dimension_count++];
  return read_name(from->words[1], to->name) && read_number(from->words[2], 0, LARGEST, &to->minimum) &&
         read_number(from->words[3], to->minimum, LARGEST, &to->maximum) &&
         read_number(from->words[4], 1, LARGEST, &to->multiple);
}

static int read_library(reader *from) {
  description *out = from->out;
  if (from->count < 2 || out->library_count == MAX_LIBRARIES) return 0;
  int first = out->library_count == 0;
  library *to = &out->libraries[out->library_count++];
  if (!read_name(from->words[1], to->file) || strchr(to->file, '/')) return 0;
  if (from->count != (first ? 2 : 2 + out->dimension_count)) return 0;
  for (int i = 2; i < from->count; i++) {
    const char *equals = strchr(from->words[i], '=');
    int place = equals ? find_dimension(out, from->words[i], (size_t)(equals - from->words[i])) : -1;
    if (place < 0 || !read_number(equals + 1, 1, LARGEST, &to->sizes[place])) return 0;
  }
  return 1;
}

static int read_weight(reader *from) {
  description *out = from->out;
  if (from->count < 3 || from->count - 3 > AUTOPIPE_MAX_RANK || out->weight_count == MAX_WEIGHTS) return 0;
  if (!(out->weight_count & (out->weight_count + 1))) { /* grows in powers of two */
    weight *grown = realloc(out->weights, (2 * out->weight_count + 2) * sizeof *grown);
    if (!grown) return 0;
    out->weights = grown;
  }
  weight *to = &out->weights[out->weight_count++];
  int dtype = read_dtype(from->words[1]);
  int64_t offset;
  if (dtype < 0 || !read_number(from->words[2], 0, INT64_MAX, &offset)) return 0;
  to->dtype = DTYPES[dtype].inner;
  to->bytes = to->dtype.bits / 8;
  to->offset = (uint64_t)offset;
  to->rank = from->count - 3;
  for (int axis = 0; axis < to->rank; axis++) {
    if (!read_number(from->words[3 + axis], 0, LARGEST, &to->shape[axis])) return 0;
    if (__builtin_mul_overflow(to->bytes, (uint64_t)to->shape[axis], &to->bytes)) return 0;
  }
  return to->offset % ALIGNMENT == 0 && to->offset <= from->weights_size &&
         to->bytes <= from->weights_size - to->offset;
}

static int read_taken(reader *from) {
  description *out = from->out;
  char file[NAME_BYTES];
  if (from->count < 2 || !read_name(from->words[1], file)) return 0;
  for (int i = 0; i < out->library_count; i++) {
    library *to = &out->libraries[i];
    if (strcmp(to->file, file)) continue;
    size_t more = (size_t)from->count - 2;
    if (to->weight_count + more > MAX_WEIGHTS) return 0;
    int *grown = realloc(to->weights, (to->weight_count + more + 1) * sizeof *grown);
    if (!grown) return 0;
    to->weights = grown;
    for (size_t k = 0; k < more; k++) {
      int64_t place;
      if (!read_number(from->words[2 + k], 0, (int64_t)out->weight_count - 1, &place)) return 0;
      to->weights[to->weight_count++] = (int)place;
    }
    return 1;
  }
  return 0;
}

static int read_feature(reader *from) {
  if (from->count != 3) return 0;
  char flag[NAME_BYTES + 2];
  if ((size_t)snprintf(flag, sizeof flag, " %s ", from->words[2]) >= sizeof flag) return 0;
  if (!strncmp(from->words[1], "amx-", 4)) from->out->uses_tiles = 1;
  if (!from->out->missing[0] && !strstr(from->flags, flag))
    snprintf(from->out->missing, sizeof from->out->missing, "%s", from->words[1]);
  return 1;
}

static int read_scalars(reader *from) {
  int64_t threads;
  const char *kind = from->words[0];
  if (!strcmp(kind, "threads"))
    return from->count == 2 && read_number(from->words[1], 1, 4096, &threads) && (from->out->threads = (int)threads);
  if (strcmp(kind, "processor") || from->count != 3) return 0;
  if (strlen(from->words[1]) >= sizeof from->out->machine || strlen(from->words[2]) >= sizeof from->out->processor) return 0;
  strcpy(from->out->machine, from->words[1]);
  strcpy(from->out->processor, from->words[2]);
  return 1;
}

static int read_words(reader *from) {
  const char *kind = from->words[0];
  if (!strcmp(kind, "feature")) return read_feature(from);
  if (!strcmp(kind, "dimension")) return read_dimension(from);
  if (!strcmp(kind, "input")) return read_port(from, from->out->inputs, &from->out->input_count, 0);
  if (!strcmp(kind, "output")) return read_port(from, from->out->outputs, &from->out->output_count, 1);
  if (!strcmp(kind, "library")) return read_library(from);
  if (!strcmp(kind, "weight")) return read_weight(from);
  if (!strcmp(kind, "takes")) return read_taken(from);
  return read_scalars(from);
}

static int split_line(reader *from) {
  char *rest = from->line;
  from->count = 0;
  for (char *word; (word = strsep(&rest, " "));) {
    if (from->count == MAX_WORDS || !*word) return 0;
    from->words[from->count++] = word;
  }
  return 1;
}

/* Reads all lines; returns the number of the line that is wrong, or 0. */
static int read_lines(reader *from, const mapped_file *file) {
  const char *at = file->data, *end = file->data + file->size;
  for (int number = 1; at < end; number++) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t length = stop ? (size_t)(stop - at) : 0;
    if (!stop || !length || length >= LINE_BYTES || memchr(at, 0, length)) return number;
    memcpy(from->line, at, length);
    from->line[length] = 0;
    at = stop + 1;
    if (!split_line(from)) return number;
    if (number == 1) {
      if (strcmp(from->words[0], "autopipe") || from->count != 2 || strcmp(from->words[1], "1")) return number;
    } else if (!strcmp(from->words[0], "end")) {
      return at == end && from->count == 1 && from->out->library_count && from->out->output_count && from->out->threads
                 ? 0 : number;
    } else if (!read_words(from)) {
      return number;
    }
  }
  return INT_MAX;
}

static const char *name_file(int place, char name[NAME_BYTES]) {
  if (place) snprintf(name, NAME_BYTES, "model.%d.txt", place);
  else strcpy(name, "model.txt");
  return name;
}

int has_description(const char *folder, int place) {
  char name[NAME_BYTES], path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name_file(place, name));
  return access(path, F_OK) == 0;
}

autopipe_status read_description(const char *folder, int place, size_t weights_size, description *out) {
  mapped_file file;
  char name[NAME_BYTES];
  memset(out, 0, sizeof *out);
  autopipe_status status = map_file(folder, name_file(place, name), &file);
  if (status) return status;
  reader *from = calloc(1, sizeof *from);
  char *flags = read_flags();
  if (!from || !flags) {
    status = fail(AUTOPIPE_OUT_OF_MEMORY, "no memory for %s/%s", folder, name);
  } else {
    from->out = out, from->weights_size = weights_size, from->flags = flags;
    int line = read_lines(from, &file);
    if (line == INT_MAX) status = fail(AUTOPIPE_INVALID_FILE, "%s/%s: it has no end", folder, name);
    else if (line) status = fail(AUTOPIPE_INVALID_FILE, "%s/%s:%d: not a description of this format", folder, name, line);
  }
  free(flags);
  free(from);
  unmap_file(&file);
  return status;
}

void free_description(description *of) {
  for (int i = 0; i < of->library_count; i++) free(of->libraries[i].weights);
  free(of->weights);
  memset(of, 0, sizeof *of);
}
