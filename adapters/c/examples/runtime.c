/* A small runtime: barrier, broadcast and allreduce, made of messages. Works with any number of ranks.
 *
 * A real runtime would choose its algorithms by the number of ranks and the length. These are the usual ones for short messages:
 * a dissemination barrier, and binomial trees.
 *
 *     cc -o runtime runtime.c -ltowline
 *     towline run -n 5 ./runtime
 */
#include <stdio.h>
#include <string.h>
#include <towline.h>

/* The runtime's own communicator keeps its messages apart from those of the program. */
struct runtime {
    towline_context_t context;
    towline_comm_t comm;
    uint32_t rank, size;
};

enum { BARRIER = 1, BROADCAST, REDUCE };

/* Returns the first error from the function that it is in. */
#define TRY(call)                                                                                                                       \
    do {                                                                                                                                \
        int code_ = (call);                                                                                                             \
        if (code_ != TOWLINE_SUCCESS) return code_;                                                                                     \
    } while (0)

static int runtime_begin(struct runtime *runtime) {
    towline_comm_t world;
    TRY(towline_init(TOWLINE_THREAD_SINGLE, NULL, &runtime->context));
    TRY(towline_world(runtime->context, &world));
    TRY(towline_comm_dup(world, &runtime->comm));
    TRY(towline_comm_rank(world, &runtime->rank));
    return towline_comm_size(world, &runtime->size);
}

/* In step k, each rank tells the one that is 2^k ranks ahead, and hears from the one that is as far behind. */
static int runtime_barrier(struct runtime *runtime) {
    for (uint64_t distance = 1; distance < runtime->size; distance *= 2) {
        const uint32_t ahead = (uint32_t)((runtime->rank + distance) % runtime->size);
        const uint32_t behind = (uint32_t)((runtime->rank + runtime->size - distance) % runtime->size);
        towline_request_t requests[2];
        TRY(towline_irecv(runtime->comm, NULL, 0, TOWLINE_BYTES, behind, BARRIER, &requests[0]));
        TRY(towline_isend(runtime->comm, NULL, 0, TOWLINE_BYTES, ahead, BARRIER, TOWLINE_SEND_STANDARD, &requests[1]));
        TRY(towline_wait_all(2, requests, NULL));
    }
    return TOWLINE_SUCCESS;
}

/* Rank 0 has the data. A rank with the lowest bit b set gets it from the rank without that bit, and passes it on to those below b. */
static int runtime_broadcast(struct runtime *runtime, void *data, size_t bytes) {
    uint64_t bit = 1;
    while (bit < runtime->size && !(runtime->rank & bit)) bit *= 2;
    if (runtime->rank != 0) {
        TRY(towline_recv(runtime->comm, data, bytes, TOWLINE_BYTES, runtime->rank - (uint32_t)bit, BROADCAST, NULL));
    }
    for (bit /= 2; bit != 0; bit /= 2) {
        if (runtime->rank + bit < runtime->size) {
            TRY(towline_send(runtime->comm, data, bytes, TOWLINE_BYTES, runtime->rank + (uint32_t)bit, BROADCAST,
                             TOWLINE_SEND_STANDARD));
        }
    }
    return TOWLINE_SUCCESS;
}

/* The sum of all ranks' numbers, at all ranks: up the tree, and down again. */
static int runtime_sum(struct runtime *runtime, double *numbers, size_t count) {
    double other[64];
    if (count > 64) return TOWLINE_ERR_ARGUMENT;
    for (uint64_t bit = 1; bit < runtime->size; bit *= 2) {
        if (runtime->rank & bit) {
            TRY(towline_send(runtime->comm, numbers, count * sizeof *numbers, TOWLINE_BYTES, runtime->rank - (uint32_t)bit, REDUCE,
                             TOWLINE_SEND_STANDARD));
            break;
        }
        if (runtime->rank + bit < runtime->size) {
            TRY(towline_recv(runtime->comm, other, count * sizeof *other, TOWLINE_BYTES, runtime->rank + (uint32_t)bit, REDUCE, NULL));
            for (size_t i = 0; i < count; i++) numbers[i] += other[i];
        }
    }
    return runtime_broadcast(runtime, numbers, count * sizeof *numbers);
}

static int program(struct runtime *runtime) {
    char greeting[32] = "";
    double numbers[2];
    TRY(runtime_begin(runtime));
    TRY(runtime_barrier(runtime));
    if (runtime->rank == 0) strcpy(greeting, "hello from rank 0");
    TRY(runtime_broadcast(runtime, greeting, sizeof greeting));
    numbers[0] = runtime->rank;
    numbers[1] = 1;
    TRY(runtime_sum(runtime, numbers, 2));
    printf("rank %u: %s; %g ranks, and the sum of their numbers is %g\n", runtime->rank, greeting, numbers[1], numbers[0]);
    return towline_finish(runtime->context);
}

int main(void) {
    struct runtime runtime = {0};
    char text[500];
    if (program(&runtime) == TOWLINE_SUCCESS) return 0;
    towline_error_text(text, sizeof text);
    fprintf(stderr, "runtime: %s\n", text);
    return 1;
}
