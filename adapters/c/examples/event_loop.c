/* An event loop: the program waits for messages and for something else at the same time, by poll(2). Works with any number of ranks.
 *
 * Each rank gets lines from a pipe, as a program gets them from a user or from a socket, and sends each of them to rank 0. The loop of
 * rank 0 prints the lines of all ranks. It sleeps while neither a line nor a message has come.
 *
 *     cc -o event_loop event_loop.c -ltowline -lpthread
 *     towline run -n 3 ./event_loop
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <towline.h>
#include <unistd.h>

/* Returns the first error from the function that it is in. */
#define TRY(call)                                                                                                                       \
    do {                                                                                                                                \
        int code_ = (call);                                                                                                             \
        if (code_ != TOWLINE_SUCCESS) return code_;                                                                                     \
    } while (0)

enum { LINES = 3, LENGTH = 24, LINE = 1 };

/* Writes lines of a fixed length to the pipe. It uses no function of Towline, so the context may be of one thread. */
static void *type_lines(void *argument) {
    const int pipe_end = *(const int *)argument;
    for (int i = 0; i < LINES; i++) {
        char line[LENGTH] = "";
        snprintf(line, sizeof line, "line %d", i);
        if (write(pipe_end, line, sizeof line) != sizeof line) break;
    }
    close(pipe_end);
    return NULL;
}

/* Prints what has arrived so far. Makes progress: the functions that do not wait do so, too. */
static int print_arrived(towline_comm_t world, unsigned *missing) {
    for (;;) {
        char line[LENGTH];
        towline_status_t status;
        bool found;
        TRY(towline_iprobe(world, TOWLINE_ANY_SOURCE, LINE, &found, &status));
        if (!found) return TOWLINE_SUCCESS;
        TRY(towline_recv(world, line, sizeof line, TOWLINE_BYTES, status.source, LINE, NULL));
        printf("rank %u: %s\n", status.source, line);
        --*missing;
    }
}

static int loop(towline_context_t context, towline_comm_t world, int lines, unsigned missing) {
    struct pollfd watched[2] = {{.fd = -1, .events = POLLIN}, {.fd = lines, .events = POLLIN}};
    TRY(towline_wait_fd(context, &watched[0].fd));
    while (missing != 0 || watched[1].fd != -1) {
        /* 1. Look at everything that may have come. */
        TRY(print_arrived(world, &missing));
        if (missing == 0 && watched[1].fd == -1) break;
        /* 2. Arm: from now on, whatever happens makes the descriptor readable. Something may have happened just now. */
        bool may_sleep;
        TRY(towline_arm(context, &may_sleep));
        /* 3. Sleep until a descriptor is readable. poll ignores those that are -1. */
        if (poll(watched, 2, may_sleep ? -1 : 0) < 0) continue;
        if (watched[1].revents != 0) {
            char line[LENGTH];
            if (read(lines, line, sizeof line) == sizeof line) {
                TRY(towline_send(world, line, sizeof line, TOWLINE_BYTES, 0, LINE, TOWLINE_SEND_STANDARD));
            } else {
                watched[1].fd = -1; /* that was the last line */
            }
        }
    }
    return TOWLINE_SUCCESS;
}

static int program(int lines) {
    towline_context_t context;
    towline_comm_t world;
    uint32_t rank, size;
    TRY(towline_init(TOWLINE_THREAD_FUNNELED, NULL, &context));
    TRY(towline_world(context, &world));
    TRY(towline_comm_rank(world, &rank));
    TRY(towline_comm_size(world, &size));
    TRY(loop(context, world, lines, rank == 0 ? size * LINES : 0));
    return towline_finish(context);
}

int main(void) {
    int ends[2];
    pthread_t typist;
    char text[500];
    if (pipe(ends) != 0 || pthread_create(&typist, NULL, type_lines, &ends[1]) != 0) return 1;
    int code = program(ends[0]);
    pthread_join(typist, NULL);
    if (code == TOWLINE_SUCCESS) return 0;
    towline_error_text(text, sizeof text);
    fprintf(stderr, "event_loop: %s\n", text);
    return 1;
}
