#define _GNU_SOURCE
#include "processor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __aarch64__

#include <sys/auxv.h>

/* The kernel hands the features to every process, so that an emulator states its own; /proc/cpuinfo would be the host's.
 * Bits of AT_HWCAP, and from 100 on of AT_HWCAP2, with the names that /proc/cpuinfo has for them. */
static const struct { int bit; const char *flag; } BITS[] = {
    {1, "asimd"}, {8, "atomics"}, {10, "asimdhp"}, {20, "asimddp"}, {22, "sve"}, {101, "sve2"}, {113, "i8mm"}, {114, "bf16"},
};
enum { BIT_COUNT = sizeof BITS / sizeof *BITS, FLAGS_BYTES = 256 };

char *read_flags(void) {
  char *flags = calloc(1, FLAGS_BYTES);
  unsigned long words[] = {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
  if (flags) strcpy(flags, " ");
  for (int i = 0; flags && i < BIT_COUNT; i++)
    if (words[BITS[i].bit / 100] >> BITS[i].bit % 100 & 1) strcat(strcat(flags, BITS[i].flag), " ");
  return flags;
}

#else

/* Reads the flags of the first processor. */
char *read_flags(void) {
  FILE *file = fopen("/proc/cpuinfo", "re");
  char *line = NULL, *found = NULL;
  size_t room = 0;
  while (file && !found && getline(&line, &room, file) > 0) {
    char *colon = strchr(line, ':');
    if (!colon || strncmp(line, "flags", 5)) continue;
    size_t length = strlen(colon + 1);
    found = calloc(1, length + 3);
    if (!found) break;
    found[0] = ' ';
    memcpy(found + 1, colon + 1, length);
    for (char *c = found; *c; c++)
      if (*c == '\n') *c = ' ';
    strcat(found, " ");
  }
  if (file) fclose(file);
  free(line);
  return found ? found : calloc(1, 2);
}

#endif
