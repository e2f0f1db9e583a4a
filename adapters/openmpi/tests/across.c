/* The first message of the job comes from the other host: all ranks of the second half send to all of the first half, which receive
 * from any source, and have sent nothing before. Then they answer. Prints "done" on rank 0. */
#include <mpi.h>
#include <stdio.h>

#include "check.h"

#define ROUNDS 60

int main(int argc, char **argv)
{
    static char out[1 << 17], in[1 << 17];
    static const int lengths[] = { 8, 5000, sizeof out };
    int rank, size, at, round, count;
    MPI_Status status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (round = 0; round < ROUNDS; round++) {
        for (at = 0; at < size / 2; at++) {
            if (rank >= size / 2) {
                out[lengths[round % 3] - 1] = (char) (rank + round);
                MPI_Send(out, lengths[round % 3], MPI_BYTE, at, round, MPI_COMM_WORLD);
                MPI_Recv(in, lengths[round % 3], MPI_BYTE, at, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(in, sizeof in, MPI_BYTE, MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &status);
                MPI_Get_count(&status, MPI_BYTE, &count);
                TRUE(status.MPI_SOURCE >= size / 2 && lengths[round % 3] == count && in[count - 1] == (char) (status.MPI_SOURCE + round));
                MPI_Send(out, count, MPI_BYTE, status.MPI_SOURCE, round, MPI_COMM_WORLD);
            }
        }
    }
    if (0 == rank) {
        puts("done");
    }
    MPI_Finalize();
    return 0;
}
