/* Preloaded: a thread of TVM's pool takes long to read how often it looks for work, the first thing that it does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

char *getenv(const char *name) {
  char *(*real)(const char *) = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");
  if (!strcmp(name, "TVM_THREAD_POOL_SPIN_COUNT")) usleep(300000);
  return real(name);
}
