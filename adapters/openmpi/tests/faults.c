/* What happens to a program when a process dies, or a link is cut. The ranks exchange messages of many sizes, and check every byte.
 *
 *     faults killed         rank 1 is killed in the middle of its exchanges
 *     faults aborts         rank 1 calls MPI_Abort then
 *     faults cut FOLDER     rank 0 opens the pipe FOLDER/exchanging, and all go on until the file FOLDER/cut exists, and then for some rounds
 *
 * The last rank of "killed" and "aborts" has a message of rank 1 that it never looks at. */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST (1 << 20)
#define ROUNDS 50

static const unsigned lengths[] = { 0, 1, 100, 5000, 70000, MOST };
#define LENGTHS (int) (sizeof lengths / sizeof *lengths)

static int rank, size;
static unsigned char *out, *in;
/* How this process ends in the middle of a long message of round ROUNDS, if it does. */
static void (*end)(void);

static void fail(const char *what, long a, long b)
{
    fprintf(stderr, "rank %d: %s: %ld, %ld\n", rank, what, a, b);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_at(int from, int round, int at)
{
    return (unsigned char) (from * 31 + round * 13 + at * 7 + (at >> 8));
}

/* Sends messages of all lengths to a rank and gets as many from it. */
static void exchange(int other, int round)
{
    int index, at, count;
    for (index = 0; index < LENGTHS; index++) {
        int length = (int) lengths[index];
        MPI_Request requests[2];
        MPI_Status statuses[2];
        for (at = 0; at < length; at++) {
            out[at] = byte_at(rank, round, at);
        }
        memset(in, 0, lengths[index]);
        MPI_Irecv(in, length, MPI_BYTE, other, round, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, length, MPI_BYTE, other, round, MPI_COMM_WORLD, &requests[1]);
        if (NULL != end && round == ROUNDS && length == MOST) {
            end();
        }
        MPI_Waitall(2, requests, statuses);
        MPI_Get_count(&statuses[0], MPI_BYTE, &count);
        if (count != length) {
            fail("wrong length", count, length);
        }
        for (at = 0; at < count; at++) {
            if (in[at] != byte_at(other, round, at)) {
                fail("wrong byte", at, count);
            }
        }
    }
}

/* Each of the first ranks exchanges with each other one of them. */
static void exchange_all(int ranks, int round)
{
    int other;
    /* The pairs that exchange at the same time have the same sum of ranks. */
    for (int sum = 0; sum < ranks; sum++) {
        other = (sum - rank + ranks) % ranks;
        if (other != rank && rank < ranks) {
            exchange(other, round);
        }
    }
}

static void die(void)
{
    raise(SIGKILL);
}

static void give_up(void)
{
    MPI_Abort(MPI_COMM_WORLD, 7);
}

static void lose_rank_1(void (*how)(void))
{
    int round;
    if (rank == size - 1) {
        /* It computes, and never looks at what rank 1 sends. */
        for (;;) {
            pause();
        }
    }
    if (rank == 1) {
        MPI_Request request;
        MPI_Isend(out, 100, MPI_BYTE, size - 1, 0, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        end = how;
    }
    for (round = 0;; round++) {
        exchange_all(size - 1, round);
    }
}

static void go_on(const char *folder)
{
    char exchanging[4096], cut[4096];
    int round, last = -1, file;
    snprintf(exchanging, sizeof exchanging, "%s/exchanging", folder);
    snprintf(cut, sizeof cut, "%s/cut", folder);
    for (round = 0; round != last; round++) {
        exchange_all(size, round);
        if (rank == 0 && round == ROUNDS) {
            file = open(exchanging, O_CREAT | O_WRONLY, 0600);
            if (file < 0) {
                fail("cannot open the pipe", errno, 0);
            }
            close(file);
        }
        if (last < 0) {
            int is_cut = rank == 0 && access(cut, F_OK) == 0;
            MPI_Bcast(&is_cut, 1, MPI_INT, 0, MPI_COMM_WORLD);
            last = is_cut ? round + ROUNDS : -1;
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d rounds, of which %d after the cut\n", round, ROUNDS);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    out = malloc(MOST);
    in = malloc(MOST);
    if (argc == 3 && strcmp(argv[1], "cut") == 0) {
        go_on(argv[2]);
    } else if (argc == 2 && size >= 3) {
        lose_rank_1(strcmp(argv[1], "aborts") == 0 ? give_up : die);
    } else {
        fail("wrong arguments, or less than 3 ranks", argc, size);
    }
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
