#include "error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[1024];

const char *autopipe_last_error(void) { return message; }

autopipe_status fail(autopipe_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  for (char *c = message; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 127) *c = ' '; /* names come from a model: one line, no control characters */
  return status;
}

autopipe_status succeed(void) {
  message[0] = 0;
  return AUTOPIPE_OK;
}
