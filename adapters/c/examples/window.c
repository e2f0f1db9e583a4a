/* One-sided operations: every rank writes to the memory of others, which do not receive anything. Works with any number of ranks.
 *
 * The program balances work: there are as many tasks as each rank could ask for, and a shared counter says which one is the next.
 * Each rank takes tasks until there are none left, and puts its results into the memory of rank 0.
 *
 *     cc -o window window.c -ltowline
 *     towline run -n 5 ./window
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <towline.h>

/* Returns the first error from the function that it is in. */
#define TRY(call)                                                                                                                       \
    do {                                                                                                                                \
        int code_ = (call);                                                                                                             \
        if (code_ != TOWLINE_SUCCESS) return code_;                                                                                     \
    } while (0)

enum { TASKS = 100 };

/* The part of each rank in the window. Only that of rank 0 is used here. The words of atomic operations are at multiples of their
 * size. */
struct part {
    uint64_t next_task;      /* the first task that nobody has taken */
    uint64_t done;           /* how many tasks are done */
    uint32_t results[TASKS]; /* what the tasks have computed */
    int64_t first;           /* the rank that had no more work first, or -1 */
};

/* Where a member of the structure is in a part, in bytes: offsets and not addresses name places in the memory of other ranks. */
#define AT(member) offsetof(struct part, member)

/* The next task. The counter at rank 0 is read and increased in one step, so that no two ranks get the same task. */
static int take_task(towline_window_t window, uint64_t *task) {
    const uint64_t one = 1;
    return towline_window_fetch_op(window, TOWLINE_ADD, TOWLINE_UINT64, &one, task, 0, AT(next_task));
}

static int work(towline_window_t window, uint32_t *taken) {
    const uint64_t one = 1;
    uint64_t task;
    for (*taken = 0;; ++*taken) {
        TRY(take_task(window, &task));
        if (task >= TASKS) break;
        const uint32_t result = (uint32_t)(task * task);
        /* A put returns as soon as `result` may be changed. It is complete at rank 0 after the next flush. */
        TRY(towline_window_put(window, &result, sizeof result, 0, AT(results) + task * sizeof result));
        TRY(towline_window_accumulate(window, TOWLINE_ADD, TOWLINE_UINT64, &one, 1, 0, AT(done)));
    }
    /* After this, rank 0 has all results of this rank. */
    return towline_window_flush(window, 0);
}

static int program(void) {
    towline_context_t context;
    towline_comm_t world;
    towline_window_t window;
    uint32_t rank, size, taken;
    TRY(towline_init(TOWLINE_THREAD_SINGLE, NULL, &context));
    TRY(towline_world(context, &world));
    TRY(towline_comm_rank(world, &rank));
    TRY(towline_comm_size(world, &size));

    /* All ranks make the window together. Each gives its own part; the memory is the library's, and is zeroed. */
    TRY(towline_window_allocate(world, sizeof(struct part), TOWLINE_ACCESS_ALL, &window));
    void *base;
    TRY(towline_window_base(window, &base, NULL));
    struct part *mine = (struct part *)base; /* for this rank, while no other rank accesses its part */
    mine->first = -1;
    /* A fence ends what was before, at all ranks: from now on other ranks may write. */
    TRY(towline_window_fence(window));

    TRY(work(window, &taken));
    /* Of all ranks that try, one alone finds what it expects. */
    const int64_t nobody = -1, me = rank;
    int64_t before;
    TRY(towline_window_compare_swap(window, TOWLINE_INT64, &nobody, &me, &before, 0, AT(first)));
    const bool was_first = before == -1;

    TRY(towline_window_fence(window));
    /* Now all operations of all ranks are complete, and rank 0 may read its part like any other memory. */
    if (rank == 0) {
        uint64_t sum = 0;
        for (int i = 0; i < TASKS; i++) sum += mine->results[i];
        printf("%" PRIu64 " tasks are done, and the sum of their results is %" PRIu64 "\n", mine->done, sum);
    }
    if (was_first) {
        /* A get is complete when it returns. */
        int64_t first;
        TRY(towline_window_get(window, &first, sizeof first, 0, AT(first)));
        printf("the rank that was first %s itself there\n", first == me ? "finds" : "does not find");
    }

    /* The library counts, too. A rank has asked once more than it got tasks, has counted each task, and has compared once. */
    uint64_t atomics, puts;
    TRY(towline_counter(context, "program.atomics", &atomics));
    TRY(towline_counter(context, "program.puts", &puts));
    if (puts != taken || atomics != 2 * (uint64_t)taken + 2) return TOWLINE_ERR_OTHER;

    /* All ranks end the window together. Its memory is gone afterwards. */
    TRY(towline_window_free(window));
    return towline_finish(context);
}

int main(void) {
    char text[500];
    if (program() == TOWLINE_SUCCESS) return 0;
    towline_error_text(text, sizeof text);
    fprintf(stderr, "window: %s\n", text);
    return 1;
}
