#ifndef AUTOPIPE_ERROR_H
#define AUTOPIPE_ERROR_H

#include "autopipe.h"

/* Sets the message of this thread's last error and returns `status`. */
autopipe_status fail(autopipe_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Clears it and returns AUTOPIPE_OK. */
autopipe_status succeed(void);

#endif
