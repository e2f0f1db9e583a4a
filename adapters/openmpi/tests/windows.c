/* Windows: put, get, accumulate, fetch_and_op and compare_and_swap, with fences, with locks, and with post and start. With the argument
 * "threads", several threads add to words at once. Prints "done" on rank 0. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 70000
#define THREADS 3

static int rank, size;

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted) {
        fprintf(stderr, "rank %d: %s: %ld instead of %ld\n", rank, what, got, wanted);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void with_fences(void)
{
    int64_t *words, *local = malloc(sizeof *local * WORDS);
    MPI_Win window;
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Win_allocate(WORDS * sizeof *words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &window);
    for (int length = 1; length <= WORDS; length = length * 7 + 1) {
        MPI_Win_fence(0, window);
        for (int at = 0; at < WORDS; at++) {
            words[at] = -1;
        }
        for (int at = 0; at < length; at++) {
            local[at] = rank * 1000000 + at;
        }
        MPI_Win_fence(0, window);
        MPI_Put(local, length, MPI_INT64_T, to, 1, length < WORDS ? length : length - 1, MPI_INT64_T, window);
        MPI_Win_fence(0, window);
        expect("word before a put", words[0], -1);
        for (int at = 0; at < length && at + 1 < WORDS; at++) {
            expect("word that was put", words[at + 1], from * 1000000 + at);
        }
        MPI_Win_fence(0, window);
        memset(local, 0, sizeof *local * WORDS);
        MPI_Get(local, length, MPI_INT64_T, to, 0, length, MPI_INT64_T, window);
        MPI_Win_fence(0, window);
        for (int at = 1; at < length; at++) {
            expect("word that was got", local[at], rank * 1000000 + at - 1);
        }
    }
    MPI_Win_fence(0, window);
    memset(words, 0, WORDS * sizeof *words);
    MPI_Win_fence(0, window);
    for (int target = 0; target < size; target++) {
        int64_t ones[100];
        for (int at = 0; at < 100; at++) {
            ones[at] = rank + 1;
        }
        MPI_Accumulate(ones, 100, MPI_INT64_T, target, 50, 100, MPI_INT64_T, MPI_SUM, window);
    }
    MPI_Win_fence(0, window);
    for (int at = 0; at < 100; at++) {
        expect("sum of accumulates", words[50 + at], size * (size + 1) / 2);
    }
    MPI_Win_free(&window);
    free(local);
}

static void with_locks(void)
{
    int64_t memory[4] = { 0 }, one = 1, old = -1;
    int32_t narrow_one = 1, narrow_old;
    MPI_Win window;
    MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int round = 0; round < 100; round++) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
        MPI_Fetch_and_op(&narrow_one, &narrow_old, MPI_INT32_T, 0, 12, MPI_SUM, window);
        MPI_Win_unlock(0, window);
        if (old < 0 || old >= 100L * size) {
            expect("old value", old, 0);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < 20; round++) {
        int64_t value;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Get(&value, 1, MPI_INT64_T, 0, 16, 1, MPI_INT64_T, window);
        MPI_Win_flush(0, window);
        value += 3;
        MPI_Put(&value, 1, MPI_INT64_T, 0, 16, 1, MPI_INT64_T, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int64_t expected = 0;;) {
        int64_t next = expected + 1, found;
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Compare_and_swap(&next, &expected, &found, MPI_INT64_T, 0, 24, window);
        MPI_Win_unlock(0, window);
        if (found == expected) {
            break;
        }
        expected = found;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        int32_t narrow[2];
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        memcpy(narrow, &memory[1], sizeof narrow);
        expect("count", memory[0], 100 * size);
        expect("neighbour of a narrow word", narrow[0], 0);
        expect("narrow count", narrow[1], 100 * size);
        expect("count under a lock", memory[2], 60 * size);
        expect("count of swaps", memory[3], size);
        MPI_Win_unlock(0, window);
    }
    MPI_Win_free(&window);
}

static void with_post_and_start(void)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size, word = -1;
    MPI_Group all, next, former;
    MPI_Win window;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &to, &next);
    MPI_Group_incl(all, 1, &from, &former);
    MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int round = 0; round < 50; round++) {
        int mine = rank * 100 + round;
        MPI_Win_post(former, 0, window);
        MPI_Win_start(next, 0, window);
        MPI_Put(&mine, 1, MPI_INT, to, 0, 1, MPI_INT, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        expect("word that was put after start", word, from * 100 + round);
    }
    MPI_Win_free(&window);
    MPI_Group_free(&all);
    MPI_Group_free(&next);
    MPI_Group_free(&former);
}

static MPI_Win shared_window;

static void *of_thread(void *argument)
{
    int64_t one = 1, old;
    for (int round = 0; round < 100; round++) {
        MPI_Fetch_and_op(&one, &old, MPI_INT64_T, (rank + round) % size, (int) (intptr_t) argument, MPI_SUM, shared_window);
        MPI_Win_flush_all(shared_window);
    }
    return NULL;
}

static void with_threads(void)
{
    int64_t *words;
    pthread_t running[THREADS];
    MPI_Win_allocate(THREADS * sizeof *words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &shared_window);
    memset(words, 0, THREADS * sizeof *words);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, shared_window);
    for (int thread = 0; thread < THREADS; thread++) {
        pthread_create(&running[thread], NULL, of_thread, (void *) (intptr_t) thread);
    }
    for (int thread = 0; thread < THREADS; thread++) {
        pthread_join(running[thread], NULL);
    }
    MPI_Win_unlock_all(shared_window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int thread = 0; thread < THREADS; thread++) {
        long sum = 0, own = (long) words[thread];
        MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        expect("sum of threads", sum, 100L * size);
    }
    MPI_Win_free(&shared_window);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 && 0 == strcmp(argv[1], "threads"), provided;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    with_fences();
    with_locks();
    with_post_and_start();
    if (threads) {
        expect("thread level", provided, MPI_THREAD_MULTIPLE);
        with_threads();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        puts("done");
    }
    MPI_Finalize();
    return 0;
}
