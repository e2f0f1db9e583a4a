/* Calls in forked children: each kind of call is refused with TOWLINE_ERR_FORKED, or works, and none waits for ever for a lock that
 * another thread of the parent held. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How many children each context has; an argument changes it. */
static int children = 100;

#define FORKED(call) IS(call, TOWLINE_ERR_FORKED)

/* What the parent has when it forks. */
struct objects {
    towline_context_t context;
    towline_comm_t world, copy;
    towline_window_t window;
    towline_message_t message;
    towline_request_t request;
};

/* Calls with objects of the parent. */
static void refused(struct objects *has) {
    static char bytes[100];
    bool flag;
    int fd;
    uint32_t number;
    uint64_t word = 0;
    size_t length;
    const char *text;
    void *base;
    towline_comm_t comm;
    towline_window_t window;
    towline_message_t message = has->message;
    towline_request_t request = has->request, made;
    towline_status_t status;
    const towline_message_t message_before = message;
    const towline_request_t request_before = request;
    FORKED(towline_world(has->context, &comm));
    FORKED(towline_progress(has->context, NULL));
    FORKED(towline_report(has->context, TOWLINE_REPORT_TEXT, bytes, sizeof bytes, NULL));
    FORKED(towline_wait_fd(has->context, &fd));
    FORKED(towline_arm(has->context, &flag));
    FORKED(towline_counter_count(has->context, &length));
    FORKED(towline_counter_at(has->context, 0, &text, &text, &word));
    FORKED(towline_counter(has->context, "program.puts", &word));
    FORKED(towline_comm_rank(has->world, &number));
    FORKED(towline_comm_size(has->copy, &number));
    FORKED(towline_comm_dup(has->world, &comm));
    FORKED(towline_comm_split(has->world, 0, 0, &comm));
    FORKED(towline_comm_split(has->world, TOWLINE_NO_COLOR, 0, &comm));
    FORKED(towline_comm_acknowledge_failures(has->world));
    FORKED(towline_comm_free(has->copy));
    FORKED(towline_send(has->world, bytes, 1, TOWLINE_BYTES, 0, 1, TOWLINE_SEND_STANDARD));
    FORKED(towline_isend(has->world, bytes, 1, TOWLINE_BYTES, 0, 1, TOWLINE_SEND_STANDARD, &made));
    FORKED(towline_recv(has->world, bytes, 1, TOWLINE_BYTES, 0, 1, &status));
    FORKED(towline_irecv(has->world, bytes, 1, TOWLINE_BYTES, 0, 1, &made));
    FORKED(towline_probe(has->world, 0, 1, &status));
    FORKED(towline_iprobe(has->world, 0, 1, &flag, &status));
    FORKED(towline_mprobe(has->world, 0, 1, &message, &status));
    FORKED(towline_improbe(has->world, 0, 1, &flag, &message, &status));
    FORKED(towline_mrecv(&message, bytes, 1, TOWLINE_BYTES, &status));
    FORKED(towline_imrecv(&message, bytes, 1, TOWLINE_BYTES, &made));
    FORKED(towline_message_discard(&message));
    TRUE(!memcmp(&message, &message_before, sizeof message));
    FORKED(towline_wait(&request, &status));
    FORKED(towline_test(&request, &flag, &status));
    FORKED(towline_wait_all(1, &request, &status));
    FORKED(towline_wait_any(1, &request, &length, &status));
    FORKED(towline_test_any(1, &request, &length, &status));
    FORKED(towline_cancel(request, &flag));
    TRUE(!memcmp(&request, &request_before, sizeof request));
    FORKED(towline_window_allocate(has->world, 8, TOWLINE_ACCESS_ALL, &window));
    FORKED(towline_window_create(has->world, bytes, 8, TOWLINE_ACCESS_ALL, &window));
    FORKED(towline_window_base(has->window, &base, NULL));
    FORKED(towline_window_size(has->window, 0, &word));
    FORKED(towline_window_put(has->window, bytes, 1, 0, 0));
    FORKED(towline_window_get(has->window, bytes, 1, 0, 0));
    FORKED(towline_window_accumulate(has->window, TOWLINE_ADD, TOWLINE_UINT64, &word, 1, 0, 0));
    FORKED(towline_window_fetch_op(has->window, TOWLINE_ADD, TOWLINE_UINT64, &word, &word, 0, 0));
    FORKED(towline_window_compare_swap(has->window, TOWLINE_UINT64, &word, &word, &word, 0, 0));
    FORKED(towline_window_flush(has->window, 0));
    FORKED(towline_window_flush_all(has->window));
    FORKED(towline_window_fence(has->window));
    FORKED(towline_window_free(has->window));
    FORKED(towline_leave(has->context));
    FORKED(towline_finish(has->context));
    FORKED(towline_comm_rank(has->world, &number)); /* the handles are as before */
}

/* A child of a program without a launcher may be a job of its own. */
static void own_job(void) {
    towline_context_t context;
    towline_comm_t world;
    char byte;
    OK(towline_init(TOWLINE_THREAD_SINGLE, NULL, &context));
    OK(towline_world(context, &world));
    OK(towline_send(world, "x", 1, TOWLINE_BYTES, 0, 1, TOWLINE_SEND_STANDARD));
    OK(towline_recv(world, &byte, 1, TOWLINE_BYTES, 0, 1, NULL));
    OK(towline_finish(context));
}

/* Calls without a context: they work in a child as well. */
static void layouts(void) {
    towline_layout_t column, columns;
    uint64_t size;
    OK(towline_layout_vector(3, 4, 16, TOWLINE_BYTES, &column));
    OK(towline_layout_resized(column, 4, &columns));
    OK(towline_layout_size(columns, &size, NULL));
    TRUE(size == 12 && towline_abi_version() != 0 && strlen(towline_strerror(-1)) > 5);
    OK(towline_layout_free(column));
    OK(towline_layout_free(columns));
}

static atomic_bool has_ended;

/* Another thread of the parent makes and frees layouts at any time. */
static void *makes_layouts(void *argument) {
    (void)argument;
    while (!has_ended) layouts();
    return NULL;
}

/* Runs a child. Returns its exit status. */
static int child(struct objects *has, int which) {
    fflush(NULL);
    const pid_t process = fork();
    TRUE(process >= 0);
    if (process == 0) {
        alarm(200); /* a child that waits for ever ends so, and its parent notices */
        layouts();
        if (which % 10 == 0) refused(has);
        if (which % 10 == 5) own_job();
        layouts();
        if (which % 3 == 0) towline_abort(has->context, 7, NULL); /* ends the child alone */
        if (which % 3 == 1) exit(7);
        _exit(7);
    }
    int status;
    TRUE(waitpid(process, &status, 0) == process);
    TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void one_context(int level) {
    struct objects has;
    static char byte;
    bool cancelled;
    pthread_t thread;
    OK(towline_init(level, NULL, &has.context));
    OK(towline_world(has.context, &has.world));
    OK(towline_comm_dup(has.world, &has.copy));
    OK(towline_window_allocate(has.world, 8, TOWLINE_ACCESS_ALL, &has.window));
    OK(towline_send(has.world, "m", 1, TOWLINE_BYTES, 0, 9, TOWLINE_SEND_STANDARD));
    OK(towline_mprobe(has.world, 0, 9, &has.message, NULL));
    OK(towline_irecv(has.world, &byte, 1, TOWLINE_BYTES, 0, 1, &has.request));
    has_ended = false;
    TRUE(!pthread_create(&thread, NULL, makes_layouts, NULL));
    for (int which = 0; which < children; which++) TRUE(child(&has, which) == 7);
    has_ended = true;
    TRUE(!pthread_join(thread, NULL));
    /* The parent goes on as if nothing had been. */
    OK(towline_cancel(has.request, &cancelled));
    TRUE(cancelled);
    IS(towline_wait(&has.request, NULL), TOWLINE_ERR_CANCELLED);
    OK(towline_mrecv(&has.message, &byte, 1, TOWLINE_BYTES, NULL));
    TRUE(byte == 'm');
    OK(towline_window_free(has.window));
    OK(towline_comm_free(has.copy));
    OK(towline_finish(has.context));
}

int main(int count, char **words) {
    if (count > 1) children = atoi(words[1]);
    one_context(TOWLINE_THREAD_FUNNELED);
    one_context(TOWLINE_THREAD_MULTIPLE);
    puts("done");
    return 0;
}
