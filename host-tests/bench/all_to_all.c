/* The example all_to_all of crate towline for any MPI library: the same operations in the same order. Rank 0 prints the time of
 * one round. all_to_all ROUNDS BYTES, under mpirun */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void exchange(char *out, char *into, int bytes, MPI_Request *requests) {
    int posted = 0;
    for (int from = 0; from < size; from++)
        if (from != rank)
            MPI_Irecv(into + (size_t)from * bytes, bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, &requests[posted++]);
    for (int step = 1; step < size; step++) {
        int to = (rank + step) % size;
        MPI_Isend(out + (size_t)to * bytes, bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD, &requests[posted++]);
    }
    MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 1000, bytes = argc > 2 ? atoi(argv[2]) : 1024;
    char *out = calloc(size, bytes), *into = calloc(size, bytes);
    MPI_Request *requests = calloc(2 * size, sizeof *requests);
    for (int i = 0; i < rounds / 10 + 1; i++) exchange(out, into, bytes, requests);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < rounds; i++) exchange(out, into, bytes, requests);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank)
        printf("%d ranks, blocks of %d bytes, %.2f us a round\n", size, bytes, (MPI_Wtime() - start) / rounds * 1e6);
    MPI_Finalize();
    return 0;
}
