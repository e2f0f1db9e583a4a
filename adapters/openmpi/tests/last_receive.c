/* The last act of rank 1 in MPI is the receive of a long message, and it works for itself afterwards. Rank 0 has to be done meanwhile: it
 * says so through a pipe of the system, and not by MPI. The argument is the path of a FIFO that exists. Rank 0 prints "done". */
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { ROUNDS = 50, BYTES = 1 << 20 };

int main(int argc, char **argv)
{
    unsigned char *buffer = malloc(BYTES), mark = 0;
    int rank, round, pipe_of_system;
    MPI_Init(&argc, &argv);
    TRUE(2 == argc && NULL != buffer);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    pipe_of_system = open(argv[1], 0 == rank ? O_WRONLY : O_RDONLY);
    TRUE(0 <= pipe_of_system);
    for (round = 0; round < ROUNDS; round++) {
        if (0 == rank) {
            memset(buffer, round, BYTES);
            MPI_Send(buffer, BYTES, MPI_BYTE, 1, round, MPI_COMM_WORLD);
            TRUE(1 == write(pipe_of_system, &mark, 1));
        } else {
            MPI_Recv(buffer, BYTES, MPI_BYTE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            TRUE((unsigned char) round == buffer[0] && (unsigned char) round == buffer[BYTES - 1]);
            TRUE(1 == read(pipe_of_system, &mark, 1)); /* out of MPI, until rank 0 is done */
        }
    }
    close(pipe_of_system);
    free(buffer);
    if (0 == rank) {
        puts("done");
    }
    MPI_Finalize();
    return 0;
}
