#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "files.h"

static const char *const LIBRARIES[] = {"lib/libtvm_ffi.so", "lib/libtvm_runtime.so", "lib/libtvm_runtime_extra.so"};
enum { COUNT = sizeof LIBRARIES / sizeof *LIBRARIES };

struct tvm_functions tvm;

/* Two releases of TVM do not share a process: their symbols have the same names. */
static autopipe_status compare_loaded(const char *folder, const char *name, const char *own, void *loaded) {
  struct link_map *about;
  if (dlinfo(loaded, RTLD_DI_LINKMAP, &about)) return fail(AUTOPIPE_UNSUPPORTED, "%s", dlerror());
  char *path = realpath(about->l_name, NULL);
  int is_own = path && !strcmp(path, own);
  free(path);
  if (is_own) return AUTOPIPE_OK;
  int is_same;
  autopipe_status status = has_stated_digest(folder, name, about->l_name, &is_same);
  if (!status && !is_same)
    status = fail(AUTOPIPE_UNSUPPORTED, "%s was built for another TVM runtime than %s, which this process has loaded", folder, about->l_name);
  return status;
}

/* A file is loaded by its path without links: it is compared by that with the folders that are opened later. */
static autopipe_status load_file(const char *folder, const char *name, void **library) {
  char path[4096];
  autopipe_status status = check_library(folder, name);
  if (status) return status;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  char *own = realpath(path, NULL);
  if (!own) return fail(AUTOPIPE_INVALID_FILE, "%s: not a regular file", path);
  if ((*library = dlopen(strrchr(name, '/') + 1, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD)))
    status = compare_loaded(folder, name, own, *library);
  else if (!(*library = dlopen(own, RTLD_NOW | RTLD_GLOBAL)))
    status = fail(AUTOPIPE_UNSUPPORTED, "%s", dlerror());
  free(own);
  return status;
}

static autopipe_status find_functions(void *ffi, void *runtime) {
  struct tvm_functions found;
#define FIND(field, library, name) \
  if (!(found.field = (__typeof__(found.field))dlsym(library, name))) return fail(AUTOPIPE_UNSUPPORTED, "%s", dlerror());
#define FIND_FFI(name) FIND(name, ffi, "TVMFFI" #name)
  TVM_FUNCTIONS(FIND_FFI)
  FIND(ParallelLaunch, runtime, "TVMBackendParallelLaunch")
#undef FIND_FFI
#undef FIND
  tvm = found;
  return AUTOPIPE_OK;
}

autopipe_status load_runtime(const char *folder) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static int is_loaded;
  void *libraries[COUNT];
  autopipe_status status = AUTOPIPE_OK;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < COUNT && !status; i++) status = load_file(folder, LIBRARIES[i], &libraries[i]);
  if (!status && !is_loaded) is_loaded = !(status = find_functions(libraries[0], libraries[1]));
  pthread_mutex_unlock(&lock);
  return status;
}
