/* Communicators that are made from groups of a session, whose members have different indices for them: messages on several of them
 * at the same time, their duplicates and parts, and an inter-communicator.
 *
 *     sessions NUMBER     NUMBER sessions, one after the other
 *
 * Prints "done" on rank 0. */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

#define MOST_ALONE 8
#define TAG 5

/* Each rank sends its number, plus `base`, to each rank of the remote group. */
static void exchange(MPI_Comm comm, int base, bool is_inter)
{
    int rank, size, at;
    MPI_Comm_rank(comm, &rank);
    is_inter ? MPI_Comm_remote_size(comm, &size) : MPI_Comm_size(comm, &size);
    int *into = malloc(size * sizeof *into), out = base + rank;
    MPI_Request *requests = malloc(2 * size * sizeof *requests);
    for (at = 0; at < size; at++) {
        MPI_Irecv(&into[at], 1, MPI_INT, at, TAG, comm, &requests[at]);
        MPI_Isend(&out, 1, MPI_INT, at, TAG, comm, &requests[size + at]);
    }
    MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
    for (at = 0; at < size; at++) {
        TRUE(into[at] == base + at);
    }
    free(into);
    free(requests);
}

/* What was sent on one communicator is not received on another, though rank and tag are the same, and any rank and tag would do. */
static void separate(MPI_Comm one, MPI_Comm other)
{
    int rank, size, from, first = 1, second = 2, got_first, got_second;
    MPI_Request requests[2];
    MPI_Comm_rank(one, &rank);
    MPI_Comm_size(one, &size);
    MPI_Isend(&first, 1, MPI_INT, (rank + 1) % size, TAG, one, &requests[0]);
    MPI_Isend(&second, 1, MPI_INT, (rank + 1) % size, TAG, other, &requests[1]);
    MPI_Status status;
    MPI_Recv(&got_second, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, other, &status);
    from = status.MPI_SOURCE;
    MPI_Recv(&got_first, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, one, &status);
    TRUE(first == got_first && second == got_second && from == (rank + size - 1) % size && status.MPI_SOURCE == from);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void between_halves(MPI_Group world, int rank, int size)
{
    MPI_Group own, other;
    MPI_Comm inter;
    int halves[2][3] = { { 0, (size - 1) & ~1, 2 }, { 1, (size & ~1) - 1, 2 } };
    MPI_Group_range_incl(world, 1, &halves[rank % 2], &own);
    MPI_Group_range_incl(world, 1, &halves[1 - rank % 2], &other);
    TRUE(MPI_SUCCESS == MPI_Intercomm_create_from_groups(own, 0, other, 0, "halves", MPI_INFO_NULL, MPI_ERRORS_RETURN, &inter));
    exchange(inter, 700, true);
    MPI_Comm_free(&inter);
    MPI_Group_free(&own);
    MPI_Group_free(&other);
}

static void run_session(bool is_last)
{
    MPI_Session session;
    MPI_Group world, self;
    MPI_Comm alone[MOST_ALONE], one, other, copy, part;
    int rank, size, at;
    TRUE(MPI_SUCCESS == MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
    MPI_Group_from_session_pset(session, "mpi://SELF", &self);
    MPI_Group_rank(world, &rank);
    MPI_Group_size(world, &size);
    TRUE(size <= MOST_ALONE);
    /* From here on, the next free index of each rank is another. */
    for (at = 0; at < rank; at++) {
        char name[32];
        snprintf(name, sizeof name, "alone %d %d", rank, at);
        TRUE(MPI_SUCCESS == MPI_Comm_create_from_group(self, name, MPI_INFO_NULL, MPI_ERRORS_RETURN, &alone[at]));
    }
    TRUE(MPI_SUCCESS == MPI_Comm_create_from_group(world, "one", MPI_INFO_NULL, MPI_ERRORS_RETURN, &one));
    TRUE(MPI_SUCCESS == MPI_Comm_create_from_group(world, "other", MPI_INFO_NULL, MPI_ERRORS_RETURN, &other));
    exchange(one, 100, false);
    exchange(other, 200, false);
    separate(one, other);
    separate(other, one);
    MPI_Comm_dup(one, &copy);
    separate(one, copy);
    MPI_Comm_split(other, rank % 2, -rank, &part);
    exchange(part, 300, false);
    for (at = 0; at < rank; at++) {
        exchange(alone[at], 400, false);
        MPI_Comm_free(&alone[at]);
    }
    between_halves(world, rank, size);
    MPI_Barrier(one);
    MPI_Comm_free(&part);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&other);
    MPI_Comm_free(&one);
    MPI_Group_free(&self);
    MPI_Group_free(&world);
    TRUE(MPI_SUCCESS == MPI_Session_finalize(&session));
    if (is_last && 0 == rank) {
        puts("done");
    }
}

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 1;
    while (number-- > 0) {
        run_session(0 == number);
    }
    return 0;
}
