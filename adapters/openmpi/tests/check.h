/* Checks of the programs here. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the line and the condition, unless it holds. */
#define TRUE(condition) ((condition) ? (void) 0 : fail(__FILE__, __LINE__, #condition))

static inline void fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s, line %d: %s\n", file, line, what);
    _Exit(1);
}

#endif
