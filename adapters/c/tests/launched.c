/* Faults under a launcher other than `towline run`. The argument says what happens:
 *
 *     abort    rank 1 aborts the job, while the others wait for it
 *     die      rank 1 sends something to all others, and is killed while they wait for more
 *     leave    rank 1 leaves early, and the others wait for it
 */
#define _XOPEN_SOURCE 700 /* SIGKILL */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <towline.h>

static void check(int code) {
    char text[500];
    if (code == TOWLINE_SUCCESS) return;
    towline_error_text(text, sizeof text);
    fprintf(stderr, "%s\n", text);
    exit(1);
}

int main(int argc, char **argv) {
    towline_context_t context;
    towline_comm_t world;
    uint32_t rank, size;
    uint8_t byte = 0;
    const char *what = argc > 1 ? argv[1] : "";

    check(towline_init(TOWLINE_THREAD_SINGLE, NULL, &context));
    check(towline_world(context, &world));
    check(towline_comm_rank(world, &rank));
    check(towline_comm_size(world, &size));
    if (rank == 1) {
        if (strcmp(what, "abort") == 0) towline_abort(context, 7, "the input makes no sense");
        if (strcmp(what, "die") == 0) {
            for (uint32_t other = 0; other < size; other++) {
                if (other == rank) continue;
                check(towline_send(world, &byte, 1, TOWLINE_BYTES, other, 4, TOWLINE_SEND_SYNCHRONOUS));
            }
            raise(SIGKILL);
        }
        if (strcmp(what, "leave") == 0) {
            check(towline_leave(context));
            return 0;
        }
    }
    if (strcmp(what, "die") == 0) check(towline_recv(world, &byte, 1, TOWLINE_BYTES, 1, 4, NULL));
    const int code = towline_recv(world, &byte, 1, TOWLINE_BYTES, 1, 5, NULL);
    printf("rank %" PRIu32 " of %" PRIu32 ": %s\n", rank, size, towline_strerror(code));
    fflush(stdout);
    return code == TOWLINE_SUCCESS || towline_leave(context) != TOWLINE_SUCCESS;
}
