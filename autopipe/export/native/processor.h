/* What the processor that this runs on has. */
#ifndef AUTOPIPE_PROCESSOR_H
#define AUTOPIPE_PROCESSOR_H

/* Returns Linux's names of its features, each with a space on either side, to be freed; NULL without memory. */
char *read_flags(void);

#endif
