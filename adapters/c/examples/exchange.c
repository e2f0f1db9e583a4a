/* A job without a launcher: the program starts its processes itself, and they exchange what they have to tell each other by files in
 * a folder that all of them see. A runtime would use what it has instead.
 *
 *     cc -o exchange exchange.c -ltowline
 *     ./exchange 4
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, nanosleep, kill */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <towline.h>
#include <unistd.h>

#define MOST 64

/* What a rank knows of its exchange. */
struct files {
    const char *folder;
    uint32_t rank, size;
    unsigned calls; /* how often it has gathered */
};

static void name_file(char *name, size_t length, const struct files *files, uint32_t rank, const char *ending) {
    snprintf(name, length, "%s/%u.%" PRIu32 "%s", files->folder, files->calls, rank, ending);
}

static int write_file(const struct files *files, const void *bytes, size_t length) {
    char before[300], name[300];
    name_file(before, sizeof before, files, files->rank, ".part");
    name_file(name, sizeof name, files, files->rank, "");
    FILE *file = fopen(before, "wb");
    if (file == NULL) return 0;
    const size_t written = length == 0 ? 0 : fwrite(bytes, 1, length, file);
    /* The name exists only when the file is complete. */
    return (fclose(file) == 0) & (written == length) && rename(before, name) == 0;
}

/* Waits for the file of a rank, and passes its bytes on. */
static int read_file(const struct files *files, uint32_t rank, int64_t *left_ms, towline_deliver_fn deliver, void *gathered) {
    char name[300];
    FILE *file;
    name_file(name, sizeof name, files, rank, "");
    while ((file = fopen(name, "rb")) == NULL) {
        const struct timespec pause = {0, 1000000};
        if (--*left_ms <= 0) return TOWLINE_EXCHANGE_TIMEOUT;
        nanosleep(&pause, NULL);
    }
    fseek(file, 0, SEEK_END);
    const long length = ftell(file);
    rewind(file);
    void *bytes = malloc(length > 0 ? (size_t)length : 1);
    const int complete = bytes != NULL && length >= 0 && fread(bytes, 1, (size_t)length, file) == (size_t)length;
    if (complete) deliver(gathered, rank, bytes, (size_t)length);
    free(bytes);
    fclose(file);
    return complete ? 0 : 2;
}

static int gather(void *state, const void *bytes, size_t length, uint32_t timeout_ms, towline_deliver_fn deliver, void *gathered) {
    struct files *files = state;
    int64_t left_ms = timeout_ms;
    int code = write_file(files, bytes, length) ? 0 : 3;
    for (uint32_t rank = 0; rank < files->size && code == 0; rank++) {
        code = read_file(files, rank, &left_ms, deliver, gathered);
    }
    files->calls++;
    return code;
}

static void end_all(void *state, int status, const char *why) {
    fprintf(stderr, "rank %" PRIu32 ": %s\n", ((struct files *)state)->rank, why);
    (void)status; /* the program's first process ends with it, since it waits for the others */
    kill(0, SIGTERM);
}

static void check(towline_context_t context, int code) {
    char text[500];
    if (code == TOWLINE_SUCCESS) return;
    towline_error_text(text, sizeof text);
    towline_abort(context, 1, text);
}

static int run(uint32_t rank, uint32_t size, const char *folder) {
    struct files files = {folder, rank, size, 0};
    uint32_t all[MOST], token = 0;
    towline_exchange_t exchange = {0};
    towline_context_t context = TOWLINE_NULL(towline_context_t);
    towline_comm_t world;
    for (uint32_t other = 0; other < size; other++) all[other] = other;
    exchange.state = &files;
    exchange.rank = rank;
    exchange.size = size;
    exchange.local_ranks = all;
    exchange.local_count = size;
    exchange.gather = gather;
    exchange.abort = end_all;

    check(context, towline_init_with(TOWLINE_THREAD_SINGLE, NULL, &exchange, &context));
    check(context, towline_world(context, &world));
    /* A token goes round all ranks, and each adds its rank. */
    const uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    if (rank == 0) check(context, towline_send(world, &token, sizeof token, TOWLINE_BYTES, next, 1, TOWLINE_SEND_STANDARD));
    check(context, towline_recv(world, &token, sizeof token, TOWLINE_BYTES, previous, 1, NULL));
    token += rank;
    if (rank != 0) {
        check(context, towline_send(world, &token, sizeof token, TOWLINE_BYTES, next, 1, TOWLINE_SEND_STANDARD));
    } else {
        printf("the token went round %" PRIu32 " ranks and is %" PRIu32 "\n", size, token);
    }
    check(TOWLINE_NULL(towline_context_t), towline_finish(context));
    return 0;
}

int main(int argc, char **argv) {
    const int size = argc > 1 ? atoi(argv[1]) : 2;
    char folder[] = "/tmp/towline-exchange-XXXXXX", command[64];
    int failed = 0, status;
    if (size < 1 || size > MOST || mkdtemp(folder) == NULL) {
        fprintf(stderr, "usage: exchange [RANKS], at most %d\n", MOST);
        return 2;
    }
    for (int rank = 0; rank < size; rank++) {
        /* Each process is forked before it uses the library. */
        if (fork() == 0) return run((uint32_t)rank, (uint32_t)size, folder);
    }
    while (wait(&status) > 0) failed |= status != 0;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) != 0 || failed;
}
