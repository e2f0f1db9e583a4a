/* Workers, communicators of a runtime and the queue of completions, rightly and wrongly used: by one process, and by two that carry
 * each other's cards through a socket. The argument is the transport. Prints "done". */
#include "pair.h"

enum { LONG = 300000 };

/* A tag for protocols of a runtime. */
static const uint32_t OWN_TAG = UINT32_MAX - 1;

/* How many files were named to the runtime. */
static size_t named;

static void clean_up(void *state, const char *const *paths, size_t count) {
    TRUE(state == &named && count > 0);
    for (size_t i = 0; i < count; i++) TRUE(paths[i][0] == '/' && strstr(paths[i], "/towline.") != NULL);
    named += count;
}

static towline_context_t opened(uint32_t number, int level) {
    towline_place_t place = place_of(number);
    towline_context_t context;
    place.clean_up = clean_up;
    place.clean_up_state = &named;
    OK(towline_worker_open(level, settings, &place, &context));
    return context;
}

static void wrong_beginnings(void) {
    towline_place_t place = place_of(0), impossible = place;
    towline_context_t context;
    towline_comm_t comm;
    uint32_t zero = 0;
    size_t length;
    IS(towline_place_default(NULL), TOWLINE_ERR_ARGUMENT);
    OK(towline_place_default(&impossible));
    TRUE(impossible.clean_up == NULL);
    TRUE(impossible.numbers == 4096 && impossible.peers == 64 && impossible.local == 1);
    IS(towline_place_from_secret(NULL, 31, 0, &place), TOWLINE_ERR_ARGUMENT);
    IS(towline_place_from_secret("short", 5, 0, &place), TOWLINE_ERR_ARGUMENT);
    IS(towline_worker_open(0, settings, NULL, &context), TOWLINE_ERR_ARGUMENT);
    IS(towline_worker_open(0, settings, &place, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_worker_open(9, settings, &place, &context), TOWLINE_ERR_ARGUMENT);
    impossible.number = impossible.numbers;
    IS(towline_worker_open(0, settings, &impossible, &context), TOWLINE_ERR_ARGUMENT);

    /* A context of a job is no worker. */
    OK(towline_init(0, settings, &context));
    IS(towline_worker_card(context, NULL, 0, &length), TOWLINE_ERR_ARGUMENT);
    IS(towline_worker_add_peer(context, "card", 4, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_worker_remove_peer(context, 1), TOWLINE_ERR_ARGUMENT);
    IS(towline_comm_create(context, 1, &zero, 1, 0, &comm), TOWLINE_ERR_ARGUMENT);
    OK(towline_finish(context));
    IS(towline_worker_card(context, NULL, 0, &length), TOWLINE_ERR_HANDLE);
    IS(towline_worker_remove_peer(context, 1), TOWLINE_ERR_HANDLE);
    IS(towline_comm_create(context, 1, &zero, 1, 0, &comm), TOWLINE_ERR_HANDLE);
    IS(towline_cancel_queued(context, 1, NULL), TOWLINE_ERR_HANDLE);
}

/* One process alone, with itself. */
static void alone(void) {
    towline_context_t context = opened(0, TOWLINE_THREAD_SINGLE);
    towline_completion_t ended[4];
    towline_comm_t world, comm, again;
    uint32_t members[2] = {0, 9}, number = 7, rank, size;
    unsigned char card[4096], into[8] = {0};
    size_t length, count = 9;
    bool done = false, found = true;
    towline_message_t message;

    OK(towline_world(context, &world));
    OK(towline_comm_size(world, &size));
    TRUE(size == 1);
    IS(towline_worker_card(context, card, 3, &length), TOWLINE_ERR_NO_MEMORY);
    TRUE(length > 3 && length <= sizeof card);
    IS(towline_worker_card(context, card, sizeof card, NULL), TOWLINE_ERR_ARGUMENT);
    OK(towline_worker_card(context, card, sizeof card, &length));
    OK(towline_worker_add_peer(context, card, length, &number));
    TRUE(number == 0);
    IS(towline_worker_add_peer(context, card, length - 1, &number), TOWLINE_ERR_ARGUMENT);
    IS(towline_worker_add_peer(context, NULL, 10, &number), TOWLINE_ERR_ARGUMENT);
    IS(towline_worker_remove_peer(context, 0), TOWLINE_ERR_RANK);
    IS(towline_worker_remove_peer(context, 9), TOWLINE_ERR_RANK);

    IS(towline_comm_create(context, 1, members, 2, 0, &comm), TOWLINE_ERR_RANK);
    IS(towline_comm_create(context, 1, members, 1, 1, &comm), TOWLINE_ERR_RANK);
    IS(towline_comm_create(context, 1u << 31, members, 1, 0, &comm), TOWLINE_ERR_ARGUMENT);
    IS(towline_comm_create(context, 1, NULL, 1, 0, &comm), TOWLINE_ERR_ARGUMENT);
    IS(towline_comm_create(context, 1, members, 1, 0, NULL), TOWLINE_ERR_ARGUMENT);
    OK(towline_comm_create(context, 1, members, 1, 0, &comm));
    IS(towline_comm_create(context, 1, members, 1, 0, &again), TOWLINE_ERR_ARGUMENT);
    OK(towline_comm_rank(comm, &rank));
    TRUE(rank == 0);

    IS(towline_poll_queue(context, NULL, 4, &count, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_poll_queue(context, ended, 4, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    uint32_t events = 1;
    OK(towline_poll_queue(context, ended, 4, &count, &events));
    TRUE(count == 0 && events == 0);
    IS(towline_isend_queued(comm, into, 1, TOWLINE_BYTES, 0, 1, 0, 1, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_isend_queued(comm, NULL, 1, TOWLINE_BYTES, 0, 1, 0, 1, &done), TOWLINE_ERR_ARGUMENT);
    IS(towline_isend_queued(comm, into, 1, TOWLINE_BYTES, 1, 1, 0, 1, &done), TOWLINE_ERR_RANK);
    IS(towline_isend_queued(world, into, 1, TOWLINE_BYTES, 0, OWN_TAG, 0, 1, &done), TOWLINE_ERR_TAG);
    IS(towline_irecv_queued(comm, into, 8, TOWLINE_BYTES, 3, 1, 1), TOWLINE_ERR_RANK);
    IS(towline_irecv_queued(comm, NULL, 8, TOWLINE_BYTES, 0, 1, 1), TOWLINE_ERR_ARGUMENT);

    /* Own tags are matched by name, and not by any tag. */
    OK(towline_isend_queued(comm, "own", 3, TOWLINE_BYTES, 0, OWN_TAG, 0, 1, &done));
    OK(towline_iprobe(comm, TOWLINE_ANY_SOURCE, TOWLINE_ANY_TAG, &found, NULL));
    TRUE(!found);
    do OK(towline_improbe(comm, 0, OWN_TAG, &found, &message, NULL));
    while (!found);
    IS(towline_imrecv_queued(NULL, into, 8, TOWLINE_BYTES, 5), TOWLINE_ERR_ARGUMENT);
    OK(towline_imrecv_queued(&message, into, 8, TOWLINE_BYTES, 5));
    TRUE(message.bits == 0);
    IS(towline_imrecv_queued(&message, into, 8, TOWLINE_BYTES, 5), TOWLINE_ERR_HANDLE);
    do OK(towline_poll_queue(context, ended, 4, &count, NULL));
    while (count == 0 || (count == 1 && ended[0].user == 1)); /* the send may come, too */
    TRUE(ended[count - 1].user == 5 && ended[count - 1].status.error == 0 && ended[count - 1].status.bytes == 3);
    TRUE(memcmp(into, "own", 3) == 0 && ended[count - 1].status.tag == OWN_TAG);

    /* A receive that nothing matches is cancelled, and comes once. */
    OK(towline_irecv_queued(comm, into, 8, TOWLINE_BYTES, TOWLINE_ANY_SOURCE, 3, 8));
    OK(towline_cancel_queued(context, 9, &done));
    TRUE(!done);
    OK(towline_cancel_queued(context, 8, &done));
    TRUE(done);
    OK(towline_poll_queue(context, ended, 4, &count, NULL));
    TRUE(count == 1 && ended[0].user == 8 && ended[0].status.error == TOWLINE_ERR_CANCELLED);
    OK(towline_poll_queue(context, ended, 4, &count, NULL));
    TRUE(count == 0);
    OK(towline_comm_free(comm));
    IS(towline_irecv_queued(comm, into, 8, TOWLINE_BYTES, 0, 1, 1), TOWLINE_ERR_HANDLE);
    OK(towline_finish(context));
    IS(towline_poll_queue(context, ended, 4, &count, NULL), TOWLINE_ERR_HANDLE);
}

/* Takes completions until `wanted` operations have ended. Their words are their places in `ended`. */
static void take(towline_context_t context, towline_completion_t *ended, size_t wanted) {
    size_t taken = 0;
    while (taken < wanted) {
        towline_completion_t some[2];
        size_t count;
        OK(towline_poll_queue(context, some, 2, &count, NULL));
        for (size_t i = 0; i < count; i++) ended[some[i].user] = some[i];
        taken += count;
    }
}

/* The thread level of both processes. */
static int level;

static void of_two(uint32_t number, int socket) {
    towline_context_t context = opened(number, level);
    towline_completion_t ended[8];
    unsigned char card[4096], other[4096], *out = malloc(LONG), *into = malloc(LONG), small[4];
    uint32_t members[2] = {1, 0}, rank = 1 - number, remote = 1 - number, peer;
    towline_comm_t comm, view;
    size_t length, other_length;
    bool done = false;

    OK(towline_worker_card(context, card, sizeof card, &length));
    exchange(socket, card, length, other, sizeof other, &other_length);
    OK(towline_worker_add_peer(context, other, other_length, &peer));
    TRUE(peer == 1 - number);
    OK(towline_comm_create(context, 7, members, 2, rank, &comm));
    OK(towline_comm_create(context, 8, &remote, 1, TOWLINE_NO_RANK, &view));
    memset(out, (int)number + 1, LONG);

    /* A long message each way, one that is too long, and one in the other communicator, whose only rank is the other process. */
    size_t wanted = 3;
    OK(towline_irecv_queued(comm, into, LONG, TOWLINE_BYTES, 1 - rank, 1, 0));
    OK(towline_irecv_queued(comm, small, 4, TOWLINE_BYTES, TOWLINE_ANY_SOURCE, 2, 1));
    OK(towline_irecv_queued(view, small, 0, TOWLINE_BYTES, TOWLINE_ANY_SOURCE, TOWLINE_ANY_TAG, 2));
    OK(towline_isend_queued(comm, out, LONG, TOWLINE_BYTES, 1 - rank, 1, TOWLINE_SEND_SYNCHRONOUS, 3, &done));
    wanted += !done;
    OK(towline_isend_queued(comm, "too long", 8, TOWLINE_BYTES, 1 - rank, 2, TOWLINE_SEND_STANDARD, 4, &done));
    wanted += !done;
    OK(towline_isend_queued(view, NULL, 0, TOWLINE_BYTES, 0, 9, TOWLINE_SEND_STANDARD, 5, &done));
    wanted += !done;
    take(context, ended, wanted);
    TRUE(ended[0].status.error == 0 && ended[0].status.bytes == LONG && ended[0].status.source == 1 - rank);
    TRUE(into[0] == 2 - number && into[LONG - 1] == 2 - number);
    TRUE(ended[1].status.error == TOWLINE_ERR_TRUNCATED && ended[1].status.bytes == 4 && memcmp(small, "too ", 4) == 0);
    TRUE(ended[2].status.error == 0 && ended[2].status.source == 0 && ended[2].status.tag == 9);

    /* Both have all that was sent. */
    exchange(socket, card, length, other, sizeof other, &other_length);
    OK(towline_comm_free(view));
    OK(towline_comm_free(comm));
    OK(towline_worker_remove_peer(context, peer));
    IS(towline_comm_create(context, 7, members, 2, rank, &comm), TOWLINE_ERR_RANK);
    OK(number == 0 ? towline_finish(context) : towline_leave(context));
    free(out);
    free(into);
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    choose_transport(argv[1]);
    for (level = TOWLINE_THREAD_SINGLE; level <= TOWLINE_THREAD_MULTIPLE; level++) run_pair(of_two);
    wrong_beginnings();
    alone();
    TRUE((named != 0) == (strcmp(argv[1], "sm") == 0));
    puts("done");
    return 0;
}
