#define _GNU_SOURCE
#include "run.h"

#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy.h"

static const char USAGE[] =
    "usage: run [OPTIONS] [--input [NAME=]FILE.npy ...] [--output FOLDER]\n"
    "       run --describe | --self-test | --bench [--seconds S] [--warmup S] [--callers N] [--size NAME[:AXIS]=N[,N...] ...] [--json]\n"
    "options: --folder DIR     the model; by default the folder above this program\n"
    "         --threads N      of each instance (default: as tuned, at most its share of the cores)\n"
    "         --instances N    calls at the same time (default: 1, and as many as callers in a bench)\n"
    "         --verify         compare every file with SHA256SUMS first\n"
    "         --copy-weights   in private memory with large pages, in place of a mapped file\n";

int complain(autopipe_status status, const char *format, ...) {
  static const int CODES[] = {[AUTOPIPE_OK] = 2, [AUTOPIPE_INVALID_ARGUMENT] = 2, [AUTOPIPE_INVALID_FILE] = 3, [AUTOPIPE_UNSUPPORTED] = 4, [AUTOPIPE_CANCELLED] = 1};
  va_list arguments;
  va_start(arguments, format);
  fputs("error: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  return CODES[status] ? CODES[status] : 1;
}

void free_arrays(arrays *of) {
  for (size_t i = 0; i < of->count; i++) {
    if (of->items[i].owner) autopipe_release(&of->items[i]);
    else free(of->items[i].data);
  }
  of->count = 0;
}

int list_outputs(autopipe_model model, arrays *out) {
  size_t count;
  autopipe_port port;
  out->count = 0;
  if (autopipe_output_count(model, &count)) return complain(AUTOPIPE_FAILED, "%s", autopipe_last_error());
  for (size_t i = 0; i < count && i < MAX_INPUTS; i++) {
    if (autopipe_output(model, i, &port)) return complain(AUTOPIPE_FAILED, "%s", autopipe_last_error());
    out->items[out->count++] = (autopipe_tensor){.name = port.name};
  }
  return 0;
}

/* Splits NAME=FILE; a file alone is that of the only input. */
static int find_input(autopipe_model model, const char *text, autopipe_port *port, const char **file) {
  size_t count;
  autopipe_status status = autopipe_input_count(model, &count);
  for (size_t i = 0; i < count && !status; i++) {
    if ((status = autopipe_input(model, i, port))) break;
    size_t length = strlen(port->name);
    if (!strncmp(text, port->name, length) && text[length] == '=') return *file = text + length + 1, 0;
  }
  if (status) return complain(status, "%s", autopipe_last_error());
  if (count == 1) return *file = text, 0;
  return complain(AUTOPIPE_INVALID_ARGUMENT, "--input %s: write NAME=FILE.npy; --describe lists the names", text);
}

int read_inputs(autopipe_model model, const request *asked, arrays *out) {
  autopipe_port port;
  const char *file = NULL;
  for (int i = 0; i < asked->input_count; i++) {
    int code = find_input(model, asked->inputs[i], &port, &file);
    if (code) return code;
    autopipe_tensor *to = &out->items[out->count++];
    *to = (autopipe_tensor){.name = port.name};
    const char *wrong = read_npy(file, to);
    if (wrong) return complain(AUTOPIPE_INVALID_ARGUMENT, "--input %s: %s", file, wrong);
  }
  return 0;
}

static void print_array(const autopipe_tensor *array, const char *saved) {
  printf("%s: %s [", array->name, autopipe_dtype_name(array->dtype));
  for (int axis = 0; axis < array->rank; axis++) printf(axis ? ", %lld" : "%lld", (long long)array->shape[axis]);
  printf(saved ? "] -> %s\n" : "]\n", saved);
}

/* The name of an output as a file: everything but letters, digits and ._- is percent-encoded. */
static void file_name(const char *folder, const char *name, char *out, size_t room) {
  size_t at = (size_t)snprintf(out, room, "%s/", folder);
  for (; *name && at + 8 < room; name++) {
    unsigned char c = (unsigned char)*name;
    int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    at += (size_t)snprintf(out + at, room - at, plain ? "%c" : "%%%02X", c);
  }
  snprintf(out + at, room - at, ".npy");
}

int infer(autopipe_model model, const request *asked) {
  static arrays inputs, outputs;
  int code = read_inputs(model, asked, &inputs);
  if (!code) code = list_outputs(model, &outputs);
  if (!code) {
    autopipe_status status = autopipe_run(model, inputs.items, inputs.count, outputs.items, outputs.count, AUTOPIPE_NO_LIMIT);
    if (status) code = complain(status, "%s", autopipe_last_error());
  }
  if (!code && asked->output) mkdir(asked->output, 0777);
  for (size_t i = 0; i < outputs.count && !code; i++) {
    char path[4096];
    const char *wrong = NULL;
    if (asked->output) {
      file_name(asked->output, outputs.items[i].name, path, sizeof path);
      wrong = write_npy(path, &outputs.items[i]);
    }
    if (wrong) code = complain(AUTOPIPE_INVALID_FILE, "--output %s: %s", path, wrong);
    else print_array(&outputs.items[i], asked->output ? path : NULL);
  }
  free_arrays(&inputs);
  free_arrays(&outputs);
  return code;
}

static void print_port(const char *kind, const autopipe_port *port) {
  printf("%s %s: %s [", kind, port->name, autopipe_dtype_name(port->dtype));
  for (int axis = 0; axis < port->rank; axis++) {
    if (axis) fputs(", ", stdout);
    if (port->shape[axis] >= 0) printf("%lld", (long long)port->shape[axis]);
    else if (!port->maximum[axis]) fputs("?", stdout);
    else printf("%lld to %lld", (long long)port->minimum[axis], (long long)port->maximum[axis]);
    if (port->shape[axis] < 0 && port->multiple[axis] > 1) printf(" by %lld", (long long)port->multiple[axis]);
  }
  puts("]");
}

int describe(autopipe_model model, const request *asked) {
  (void)asked;
  size_t count;
  autopipe_port port;
  const char *processor;
  int threads, instances;
  autopipe_status status = autopipe_input_count(model, &count);
  for (size_t i = 0; i < count && !status; i++)
    if (!(status = autopipe_input(model, i, &port))) print_port("input", &port);
  if (!status) status = autopipe_output_count(model, &count);
  for (size_t i = 0; i < count && !status; i++)
    if (!(status = autopipe_output(model, i, &port))) print_port("output", &port);
  if (!status) status = autopipe_concurrency(model, &threads, &instances);
  if (!status) status = autopipe_processor(model, &processor);
  if (status) return complain(status, "%s", autopipe_last_error());
  printf("processor: %s\nthreads: %d\ninstances: %d\n", processor, threads, instances);
  return 0;
}

static int read_option(request *to, const char *name, const char *value) {
  char *end = "";
  if (!strcmp(name, "--folder")) return snprintf(to->folder, sizeof to->folder, "%s", value) > 0;
  if (!strcmp(name, "--output")) return to->output = value, 1;
  if (!strcmp(name, "--input") && to->input_count < MAX_INPUTS) return to->inputs[to->input_count++] = value, 1;
  if (!strcmp(name, "--size") && to->size_count < MAX_SIZES) return to->sizes[to->size_count++] = value, 1;
  if (!strcmp(name, "--seconds")) return to->seconds = strtod(value, &end), !*end && to->seconds > 0 && to->seconds <= 86400;
  if (!strcmp(name, "--warmup")) return to->warmup = strtod(value, &end), !*end && to->warmup >= 0 && to->warmup <= 86400;
  long number = strtol(value, &end, 10);
  if (*end || end == value || number < 1 || number > 1024) return 0;
  if (!strcmp(name, "--threads")) return to->options.threads = (int)number, 1;
  if (!strcmp(name, "--instances")) return to->options.instances = (int)number, 1;
  if (!strcmp(name, "--callers")) return to->callers = (int)number, 1;
  return 0;
}

typedef int action(autopipe_model model, const request *asked);

static int read_flag(request *to, const char *name, action **does) {
  if (!strcmp(name, "--describe")) return *does = describe, 1;
  if (!strcmp(name, "--self-test")) return *does = self_test, 1;
  if (!strcmp(name, "--bench")) return *does = bench, 1;
  if (!strcmp(name, "--json")) return to->prints_json = 1;
  if (!strcmp(name, "--verify")) return to->options.verify_digests = 1;
  if (!strcmp(name, "--copy-weights")) return to->options.copy_weights = 1;
  return 0;
}

int main(int count, char **words) {
  static request asked = {.seconds = 5, .warmup = 1, .callers = 1};
  action *does = infer;
  asked.options.size = sizeof asked.options;
  char own[4096] = {0};
  if (readlink("/proc/self/exe", own, sizeof own - 1) > 0) snprintf(asked.folder, sizeof asked.folder, "%s", dirname(dirname(own)));
  for (int i = 1; i < count; i++) {
    if (!strcmp(words[i], "--help") || !strcmp(words[i], "-h")) return fputs(USAGE, stdout), 0;
    if (read_flag(&asked, words[i], &does)) continue;
    if (i + 1 < count && read_option(&asked, words[i], words[i + 1])) {
      i++;
      continue;
    }
    return complain(AUTOPIPE_INVALID_ARGUMENT, "%s: not an option, or not its value\n%s", words[i], USAGE);
  }
  if (does == bench && !asked.options.instances) asked.options.instances = asked.callers;
  autopipe_model model;
  autopipe_status status = autopipe_open(asked.folder, &asked.options, &model);
  if (status) return complain(status, "%s", autopipe_last_error());
  int code = does(model, &asked);
  autopipe_close(model);
  return fflush(stdout) ? complain(AUTOPIPE_FAILED, "standard output cannot be written") : code;
}
