/* Checks of the C programs here. */
#ifndef CHECK_H
#define CHECK_H

#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <towline.h>

/* Ends the program with the line, the call and the text of the error, unless the call returns `code`. */
#define IS(call, code) expect((call), (code), __LINE__, #call)
#define OK(call) IS(call, TOWLINE_SUCCESS)
#define TRUE(condition) ((condition) ? (void)0 : fail(__LINE__, #condition, ""))

static inline void fail(int line, const char *what, const char *text) {
    fprintf(stderr, "line %d: %s: %s\n", line, what, text);
    _Exit(1);
}

static inline void expect(int got, int wanted, int line, const char *call) {
    char text[600];
    if (got == wanted) {
        if (got != 0) {
            TRUE(towline_error_text(text, sizeof text) > 20);
            TRUE(towline_error_fault() != TOWLINE_FAULT_NONE);
        }
        return;
    }
    char what[900];
    towline_error_text(text, sizeof text);
    snprintf(what, sizeof what, "%s returned %d (%s) and not %d", call, got, towline_strerror(got), wanted);
    fail(line, what, got ? text : "");
}

#endif
