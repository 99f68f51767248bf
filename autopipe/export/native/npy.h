/* Arrays in NumPy's file format, versions 1 to 3: dense, C order, little-endian. */
#ifndef AUTOPIPE_NPY_H
#define AUTOPIPE_NPY_H

#include "autopipe.h"

/* Reads a file into memory at a multiple of 64 bytes, which the caller frees. Returns NULL, or what is wrong. */
const char *read_npy(const char *path, autopipe_tensor *out);

/* Writes a file. Returns NULL, or what is wrong. */
const char *write_npy(const char *path, const autopipe_tensor *array);

#endif
