/* Messages of all sizes between all ranks, with every byte checked: contiguous and strided, one after the other and many at once, and,
 * with the argument "threads", from several threads. Prints "done" on rank 0. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (4 << 20)
#define THREADS 3

static int rank, size;

static void fail(const char *what, long a, long b)
{
    fprintf(stderr, "rank %d: %s: %ld, %ld\n", rank, what, a, b);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_at(int from, size_t at, size_t length)
{
    return (unsigned char) (from * 31 + at * 7 + (at >> 8) + length);
}

static void fill(unsigned char *buffer, int from, size_t length)
{
    for (size_t at = 0; at < length; at++) {
        buffer[at] = byte_at(from, at, length);
    }
}

static void check(const unsigned char *buffer, int from, size_t length)
{
    for (size_t at = 0; at < length; at++) {
        if (buffer[at] != byte_at(from, at, length)) {
            fail("wrong byte", (long) at, (long) length);
        }
    }
}

/* Each rank exchanges messages of one size with each other rank. */
static void exchange(size_t length)
{
    unsigned char *out = malloc(length + 1), *in = malloc(length + 1);
    for (int step = 1; step < size; step++) {
        int to = (rank + step) % size, from = (rank + size - step) % size;
        MPI_Status status;
        int count;
        fill(out, rank, length);
        memset(in, 0, length);
        MPI_Sendrecv(out, (int) length, MPI_BYTE, to, 5, in, (int) length, MPI_BYTE, from, 5, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        if ((size_t) count != length) {
            fail("wrong length", count, (long) length);
        }
        check(in, from, length);
    }
    free(out);
    free(in);
}

/* Many messages are under way at once, more than fit into any ring. */
static void flood(void)
{
    enum { COUNT = 300 };
    static MPI_Request requests[2 * COUNT];
    static unsigned char *buffers[2 * COUNT];
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int index = 0; index < COUNT; index++) {
        size_t length = (size_t) index * 97;
        buffers[index] = malloc(length + 1);
        buffers[COUNT + index] = malloc(length + 1);
        fill(buffers[COUNT + index], rank, length);
        MPI_Isend(buffers[COUNT + index], (int) length, MPI_BYTE, to, index, MPI_COMM_WORLD, &requests[index]);
    }
    for (int index = COUNT - 1; index >= 0; index--) {
        MPI_Irecv(buffers[index], index * 97, MPI_BYTE, from, index, MPI_COMM_WORLD, &requests[COUNT + index]);
    }
    MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE);
    for (int index = 0; index < COUNT; index++) {
        check(buffers[index], from, (size_t) index * 97);
        free(buffers[index]);
        free(buffers[COUNT + index]);
    }
}

/* A column of a matrix, which has to be packed. */
static void strided(int rows)
{
    MPI_Datatype column;
    int *out = malloc(sizeof *out * (size_t) rows * 3), *in = malloc(sizeof *in * (size_t) rows * 3);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Type_vector(rows, 1, 3, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int at = 0; at < rows * 3; at++) {
        out[at] = rank * 1000000 + at;
        in[at] = -1;
    }
    MPI_Sendrecv(out, 1, column, to, 9, in, 1, column, from, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int at = 0; at < rows * 3 - 2; at++) {
        int expected = at % 3 == 0 ? from * 1000000 + at : -1;
        if (in[at] != expected) {
            fail("wrong item of a column", at, in[at]);
        }
    }
    MPI_Type_free(&column);
    free(out);
    free(in);
}

static void all_to_all(int items)
{
    size_t bytes = sizeof(int) * (size_t) items * (size_t) size;
    int *out = malloc(bytes), *in = malloc(bytes), sum = rank, all = 0;
    for (int at = 0; at < items * size; at++) {
        out[at] = rank * 1000 + at / items;
    }
    MPI_Alltoall(out, items, MPI_INT, in, items, MPI_INT, MPI_COMM_WORLD);
    for (int at = 0; at < items * size; at++) {
        if (in[at] != at / items * 1000 + rank) {
            fail("wrong item of all to all", at, in[at]);
        }
    }
    MPI_Allreduce(&sum, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (all != size * (size - 1) / 2) {
        fail("wrong sum", all, 0);
    }
    free(out);
    free(in);
}

static void *of_thread(void *argument)
{
    int thread = (int) (intptr_t) argument;
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int round = 0; round < 200; round++) {
        size_t length = (size_t) (round * round * 7 + thread) % 70000;
        unsigned char *out = malloc(length + 1), *in = malloc(length + 1);
        fill(out, rank + thread, length);
        MPI_Sendrecv(out, (int) length, MPI_BYTE, to, 100 + thread, in, (int) length, MPI_BYTE, from, 100 + thread, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        check(in, from + thread, length);
        free(out);
        free(in);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 && 0 == strcmp(argv[1], "threads"), provided;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (threads && provided != MPI_THREAD_MULTIPLE) {
        fail("no MPI_THREAD_MULTIPLE", provided, 0);
    }
    for (size_t length = 0; length <= MOST; length = length < 8 ? length + 1 : length * 2) {
        exchange(length);
        exchange(length + 3);
    }
    flood();
    for (int rows = 1; rows <= 300000; rows *= 9) {
        strided(rows);
    }
    for (int items = 1; items <= 100000; items *= 10) {
        all_to_all(items);
    }
    if (threads) {
        pthread_t running[THREADS];
        for (int thread = 0; thread < THREADS; thread++) {
            pthread_create(&running[thread], NULL, of_thread, (void *) (intptr_t) thread);
        }
        for (int thread = 0; thread < THREADS; thread++) {
            pthread_join(running[thread], NULL);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        puts("done");
    }
    MPI_Finalize();
    return 0;
}
