/* Sleeping on the descriptor of a context, and counters by name. One rank by itself with several threads, and two ranks.
 *
 * The context looks at other ranks once in ten minutes here, so a lost wake-up keeps the program asleep until its alarm.
 */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 1000 };

static const char *const SETTINGS[] = {"idle_sleep_ms=600000", "stall_timeout_ms=0", NULL};

/* Waits for a request by poll(2). Returns how often it has slept. */
static int wait_in_poll(towline_context_t context, towline_request_t *request, towline_status_t *status) {
    struct pollfd watched = {.fd = -1, .events = POLLIN};
    bool done, may_sleep;
    OK(towline_wait_fd(context, &watched.fd));
    for (int sleeps = 0;;) {
        OK(towline_test(request, &done, status));
        if (done) return sleeps;
        OK(towline_arm(context, &may_sleep));
        if (!may_sleep) continue;
        TRUE(poll(&watched, 1, -1) == 1);
        sleeps++;
    }
}

static void wrong_calls(towline_context_t context) {
    const towline_context_t none = TOWLINE_NULL(towline_context_t);
    int fd, again;
    bool flag;
    size_t count;
    uint64_t value;
    const char *text;
    IS(towline_wait_fd(none, &fd), TOWLINE_ERR_HANDLE);
    IS(towline_wait_fd(context, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_arm(none, &flag), TOWLINE_ERR_HANDLE);
    IS(towline_arm(context, NULL), TOWLINE_ERR_ARGUMENT);
    OK(towline_wait_fd(context, &fd));
    OK(towline_wait_fd(context, &again));
    TRUE(fd >= 0 && fd == again);
    IS(towline_counter_count(none, &count), TOWLINE_ERR_HANDLE);
    IS(towline_counter_count(context, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_counter_at(none, 0, &text, &text, &value), TOWLINE_ERR_HANDLE);
    IS(towline_counter_at(context, SIZE_MAX, &text, &text, &value), TOWLINE_ERR_ARGUMENT);
    OK(towline_counter_at(context, 0, NULL, NULL, NULL));
    IS(towline_counter(none, "program.puts", &value), TOWLINE_ERR_HANDLE);
    IS(towline_counter(context, "program.puts", NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_counter(context, NULL, &value), TOWLINE_ERR_ARGUMENT);
    IS(towline_counter(context, "program.putts", &value), TOWLINE_ERR_ARGUMENT);
    char why[300];
    towline_error_text(why, sizeof why);
    TRUE(strstr(why, "`program.puts`"));
}

/* Each counter has a name of its own, by which it is found, and the list stays the same. */
static void all_counters(towline_context_t context) {
    size_t count, again;
    uint64_t value, by_name;
    bool has_engine = false;
    OK(towline_counter_count(context, &count));
    TRUE(count > 40);
    for (size_t i = 0; i < count; i++) {
        const char *name, *what, *other;
        OK(towline_counter_at(context, i, &name, &what, &value));
        TRUE(strchr(name, '.') && strlen(what) > 8 && what[0] != ' ');
        OK(towline_counter(context, name, &by_name));
        TRUE(by_name == value);
        has_engine |= !strcmp(name, "engine.eager_sent");
        for (size_t j = 0; j < i; j++) {
            OK(towline_counter_at(context, j, &other, NULL, NULL));
            TRUE(strcmp(name, other));
        }
    }
    OK(towline_counter_count(context, &again));
    TRUE(count == again && has_engine);
    IS(towline_counter_at(context, count, NULL, NULL, NULL), TOWLINE_ERR_ARGUMENT);
}

static uint64_t counted(towline_context_t context, const char *name) {
    uint64_t value;
    OK(towline_counter(context, name, &value));
    return value;
}

/* What the program sends and receives is counted, by whichever functions. */
static void messages_are_counted(towline_context_t context, towline_comm_t comm, uint32_t rank) {
    char data[100] = "", into[50];
    towline_request_t send, receive;
    const uint64_t sent = counted(context, "program.messages_sent"), bytes = counted(context, "program.bytes_sent");
    const uint64_t received = counted(context, "program.messages_received"), got = counted(context, "program.bytes_received");
    const uint64_t first = counted(context, "engine.eager_sent") + counted(context, "engine.rendezvous_sent");
    OK(towline_send(comm, data, 100, TOWLINE_BYTES, rank, 1, TOWLINE_SEND_STANDARD));
    IS(towline_recv(comm, into, 50, TOWLINE_BYTES, rank, 1, NULL), TOWLINE_ERR_TRUNCATED);
    OK(towline_irecv(comm, into, 50, TOWLINE_BYTES, rank, 1, &receive));
    TRUE(counted(context, "program.messages_received") == received + 1);
    OK(towline_isend(comm, data, 10, TOWLINE_BYTES, rank, 1, TOWLINE_SEND_SYNCHRONOUS, &send));
    OK(towline_wait(&send, NULL));
    OK(towline_wait(&receive, NULL));
    IS(towline_send(comm, data, 1, TOWLINE_BYTES, 99, 1, TOWLINE_SEND_STANDARD), TOWLINE_ERR_RANK);
    TRUE(counted(context, "program.messages_sent") == sent + 2 && counted(context, "program.bytes_sent") == bytes + 110);
    TRUE(counted(context, "program.messages_received") == received + 2 && counted(context, "program.bytes_received") == got + 60);
    TRUE(counted(context, "engine.eager_sent") + counted(context, "engine.rendezvous_sent") == first + 2);
}

/* Another thread sends, or cancels, while the first one sleeps or is about to. */
struct other {
    towline_context_t context;
    towline_comm_t comm;
    towline_request_t *request;
    uint32_t rank;
    pthread_barrier_t barrier;
};

static void *sender(void *argument) {
    struct other *other = (struct other *)argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&other->barrier);
        const char byte = (char)i;
        bool cancelled;
        if (i % 5 == 4) {
            OK(towline_cancel(*other->request, &cancelled));
            TRUE(cancelled);
        } else {
            OK(towline_send(other->comm, &byte, 1, TOWLINE_BYTES, other->rank, 1, TOWLINE_SEND_STANDARD));
        }
        if (i % 3 == 0) { /* this thread takes the event */
            for (int turn = 0; turn < 3; turn++) OK(towline_progress(other->context, NULL));
        }
    }
    return NULL;
}

static void several_threads(towline_context_t context, towline_comm_t comm, uint32_t rank) {
    towline_request_t request, copy;
    struct other other = {.context = context, .comm = comm, .request = &copy, .rank = rank};
    pthread_t thread;
    TRUE(!pthread_barrier_init(&other.barrier, NULL, 2) && !pthread_create(&thread, NULL, sender, &other));
    for (int i = 0; i < ROUNDS; i++) {
        struct pollfd watched = {.fd = -1, .events = POLLIN};
        char byte = -1;
        OK(towline_irecv(comm, &byte, 1, TOWLINE_BYTES, rank, 1, &request));
        copy = request;
        pthread_barrier_wait(&other.barrier);
        OK(towline_wait_fd(context, &watched.fd));
        for (;;) {
            bool done, may_sleep;
            int code = towline_test(&request, &done, NULL);
            if (code == TOWLINE_ERR_CANCELLED && i % 5 == 4) break;
            OK(code);
            if (done) break;
            OK(towline_arm(context, &may_sleep));
            if (may_sleep) TRUE(poll(&watched, 1, -1) == 1);
        }
        TRUE(i % 5 == 4 || byte == (char)i);
    }
    TRUE(!pthread_join(thread, NULL) && !pthread_barrier_destroy(&other.barrier));
}

static void one_context(int level) {
    towline_context_t context;
    towline_comm_t world;
    towline_request_t request;
    uint32_t rank;
    char byte;
    int fd;
    bool flag;
    OK(towline_init(level, SETTINGS, &context));
    OK(towline_world(context, &world));
    OK(towline_comm_rank(world, &rank));
    wrong_calls(context);
    all_counters(context);
    messages_are_counted(context, world, rank);
    OK(towline_irecv(world, &byte, 1, TOWLINE_BYTES, rank, 1, &request));
    OK(towline_send(world, "x", 1, TOWLINE_BYTES, rank, 1, TOWLINE_SEND_STANDARD));
    wait_in_poll(context, &request, NULL);
    if (level == TOWLINE_THREAD_MULTIPLE) several_threads(context, world, rank);
    OK(towline_finish(context));
    IS(towline_wait_fd(context, &fd), TOWLINE_ERR_HANDLE);
    IS(towline_arm(context, &flag), TOWLINE_ERR_HANDLE);
}

/* Each rank sleeps until the message of the other one comes. */
static void two_ranks(int level) {
    static unsigned char out[300000], in[300000];
    towline_context_t context;
    towline_comm_t world;
    uint32_t rank;
    int sleeps = 0;
    OK(towline_init(level, SETTINGS, &context));
    OK(towline_world(context, &world));
    OK(towline_comm_rank(world, &rank));
    for (int i = 0; i < 200; i++) {
        const size_t bytes = i % 10 == 9 ? sizeof out : (size_t)i;
        towline_request_t send, receive;
        towline_status_t status;
        memset(out, i, bytes);
        OK(towline_irecv(world, in, sizeof in, TOWLINE_BYTES, 1 - rank, 1, &receive));
        if ((uint32_t)i % 2 == rank) sleeps += wait_in_poll(context, &receive, &status);
        OK(towline_isend(world, out, bytes, TOWLINE_BYTES, 1 - rank, 1, TOWLINE_SEND_SYNCHRONOUS, &send));
        sleeps += wait_in_poll(context, &send, NULL);
        if ((uint32_t)i % 2 != rank) sleeps += wait_in_poll(context, &receive, &status);
        TRUE(status.bytes == bytes && (bytes == 0 || (in[0] == (unsigned char)i && in[bytes - 1] == (unsigned char)i)));
    }
    TRUE(sleeps > 0);
    all_counters(context);
    TRUE(counted(context, "program.messages_received") == 200);
    OK(towline_finish(context));
}

int main(int count, char **words) {
    alarm(280);
    if (count > 2 && !strcmp(words[1], "two")) {
        two_ranks(atoi(words[2]));
    } else {
        for (int level = TOWLINE_THREAD_SINGLE; level <= TOWLINE_THREAD_MULTIPLE; level++) one_context(level);
    }
    puts("done");
    return 0;
}
