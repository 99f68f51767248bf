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

/* Compares one file with its digest in SHA256SUMS. */
autopipe_status check_digest(const char *folder, const char *name);

/* Checks that each shared library of SHA256SUMS beside it has all its segments. */
autopipe_status check_segments(const char *folder);

/* Copies the digest that SHA256SUMS states for a file. */
autopipe_status stated_digest(const char *folder, const char *name, char out[65]);

#endif
