/* What a folder says of its model: model.txt, lines of words separated by one space, names percent-encoded. A folder with
 * variants for other processors has model.1.txt and so on, each for a better processor than the last.
 *
 *   autopipe 1
 *   threads 2
 *   processor x86_64 znver4
 *   feature avx2 avx2                             LLVM's name and that of /proc/cpuinfo
 *   dimension length 1 512 1                      name, smallest, largest, multiple
 *   input tokens int64 1 length+1                 dtype, then a size, a dimension or a sum each axis
 *   output logits float32 1 length 2..1024 -1     or smallest..largest, or -1 where nothing bounds it before a call
 *   library lib.so
 *   library lib.0.so length=128                   made for these sizes
 *   weight float32 1408 64 64                     dtype, offset in weights.safetensors, shape
 *   takes lib.so 0                                weights of a library in call order, any number of lines
 *   end
 */
#ifndef AUTOPIPE_DESCRIPTION_H
#define AUTOPIPE_DESCRIPTION_H

#include <dlpack/dlpack.h>

#include "autopipe.h"

enum { MAX_DIMENSIONS = 16, MAX_PORTS = 256, MAX_LIBRARIES = 9, MAX_WEIGHTS = 65536, MAX_TERMS = 4, NAME_BYTES = 256, MAX_VARIANTS = 3 };

/* A size: `constant` plus the sizes of `count` dimensions, or up to `spread` more. */
typedef struct extent {
  int64_t constant, spread;
  int count;
  int dimensions[MAX_TERMS];
} extent;

typedef struct dimension {
  char name[NAME_BYTES];
  int64_t minimum, maximum, multiple;
} dimension;

typedef struct port {
  char name[NAME_BYTES];
  autopipe_dtype dtype;
  int rank;
  extent extents[AUTOPIPE_MAX_RANK];
  int is_dynamic[AUTOPIPE_MAX_RANK]; /* of outputs: known only after a call */
} port;

typedef struct weight {
  DLDataType dtype;
  int rank;
  int64_t shape[AUTOPIPE_MAX_RANK];
  uint64_t offset, bytes;
} weight;

typedef struct library {
  char file[NAME_BYTES];
  int64_t sizes[MAX_DIMENSIONS]; /* of a library for these sizes; 0 in that for every size */
  int *weights;
  size_t weight_count;
} library;

typedef struct description {
  int threads;
  char machine[32], processor[64]; /* architecture, and LLVM's name of the processor */
  char missing[256]; /* the first feature that this processor lacks; "" for none */
  int uses_tiles;    /* Intel AMX, which Linux has to permit */
  dimension dimensions[MAX_DIMENSIONS];
  port inputs[MAX_PORTS], outputs[MAX_PORTS];
  library libraries[MAX_LIBRARIES];
  weight *weights;
  int dimension_count, input_count, output_count, library_count;
  size_t weight_count;
} description;

/* Reads model.txt, or with a `place` above 0 model.1.txt and so on; `weights_size` bounds the offsets. Free it in any
 * case. */
autopipe_status read_description(const char *folder, int place, size_t weights_size, description *out);

/* Whether the folder has a description at a place. */
int has_description(const char *folder, int place);

void free_description(description *of);

/* The runtime's form of a dtype. */
DLDataType to_dl_dtype(autopipe_dtype dtype);

#endif
