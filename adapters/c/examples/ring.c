/* A token goes round all ranks, and each adds its rank. Works with any number of ranks.
 *
 *     cc -o ring ring.c -ltowline
 *     towline run -n 4 ./ring
 */
#include <stdio.h>
#include <stdlib.h>
#include <towline.h>

/* Ends the whole job if a function has failed. The text says why. */
static void check(towline_context_t context, int code) {
    char text[500];
    if (code == TOWLINE_SUCCESS) return;
    towline_error_text(text, sizeof text);
    towline_abort(context, 1, text);
}

int main(void) {
    towline_context_t context = TOWLINE_NULL(towline_context_t);
    towline_comm_t world;
    towline_status_t status;
    uint32_t rank, size;
    uint64_t token = 0;

    check(context, towline_init(TOWLINE_THREAD_SINGLE, NULL, &context));
    check(context, towline_world(context, &world));
    check(context, towline_comm_rank(world, &rank));
    check(context, towline_comm_size(world, &size));

    const uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    if (rank == 0) {
        check(context, towline_send(world, &token, sizeof token, TOWLINE_BYTES, next, 1, TOWLINE_SEND_STANDARD));
    }
    check(context, towline_recv(world, &token, sizeof token, TOWLINE_BYTES, previous, 1, &status));
    token += rank;
    if (rank != 0) {
        check(context, towline_send(world, &token, sizeof token, TOWLINE_BYTES, next, 1, TOWLINE_SEND_STANDARD));
    } else {
        printf("the token went round %u ranks and is %llu\n", size, (unsigned long long)token);
    }

    check(TOWLINE_NULL(towline_context_t), towline_finish(context));
    return 0;
}
