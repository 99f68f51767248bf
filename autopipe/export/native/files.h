#ifndef AUTOPIPE_FILES_H
#define AUTOPIPE_FILES_H

#include "autopipe.h"

typedef struct mapped_file {
  const char *data; /* NULL for an empty file */
  size_t size;
} mapped_file;

/* Maps a regular file read-only. */
autopipe_status map_file(const char *folder, const char *name, mapped_file *file);

void unmap_file(mapped_file *file);

/* Compares every file that SHA256SUMS lists with its digest. */
autopipe_status check_digests(const char *folder);

/* Compares a shared library that SHA256SUMS lists with its digest, and looks whether it has all its segments: loading
 * one that was cut or changed may end the process. */
autopipe_status check_library(const char *folder, const char *name);

/* Checks the shared libraries beside SHA256SUMS, which include those that a library calls. */
autopipe_status check_libraries(const char *folder);

/* Whether the file at a path has the digest that SHA256SUMS states for a name. */
autopipe_status has_stated_digest(const char *folder, const char *name, const char *path, int *is_same);

#endif
