/* The measurements of `towline perf` for any MPI library, for comparison: half a round trip, bandwidth and message rate. The
 * time of a bare cache line's round trip is measured before and after each. Prints a line for each repetition, like
 * `towline perf-rank --exchange`: label, mode, bytes, value, limit (0: not measured), half a round trip of one cache line before
 * and after, half a round trip of two cache lines before and after.
 *
 * pingpong LABEL REPETITIONS MODE:BYTES...    under mpirun, with two ranks */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LATENCY, BANDWIDTH, RATE, BANDWIDTH_ONE_BUFFER, RATE_ONE_BUFFER, MODES };
enum { TARGET_NS = 10 * 1000 * 1000, WATCH_NS = 2 * 1000 * 1000, LONG_WATCH_NS = 10 * 1000 * 1000, BATCH = 512, MOST = 256 };
static const char *const NAMES[MODES] = {"latency", "bandwidth", "rate", "bandwidth-one-buffer", "rate-one-buffer"};
static const uint64_t LAST = 1ull << 63;

static int me;
static _Atomic uint64_t *word;
enum { THERE = 1024 / 8, BACK = 1280 / 8, MEETING = 256 / 8, CHOICE = 1536 / 8 };
static char *out, *into;

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int is_rate(int mode) { return mode == RATE || mode == RATE_ONE_BUFFER; }

/* As in adapters/cli/src/perf/plan.rs. */
static int window(int mode, long bytes) {
    long most = is_rate(mode) ? 256 : 64, fit = (8l << 20) / bytes;
    return mode == LATENCY ? 1 : fit < 2 ? 2 : fit > most ? most : fit;
}

static inline void relax(int paused) {
#if defined(__x86_64__)
    if (paused) __builtin_ia32_pause();
#else
    (void)paused;
#endif
}

static uint64_t rounds(uint64_t value, long count, uint64_t last, int paused) {
    for (long i = 1; i <= count; i++) {
        atomic_store_explicit(word, (value + 1) | (i == count ? last : 0), memory_order_release);
        value += 2;
        while (atomic_load_explicit(word, memory_order_acquire) != value) relax(paused);
    }
    return value;
}

/* Half a round trip of one cache line that both ranks write, in nanoseconds. */
static double bounce_by(int paused) {
    uint64_t value;
    if (me == 1) {
        do {
            while (!((value = atomic_load_explicit(word, memory_order_acquire)) & 1)) relax(paused);
            atomic_store_explicit(word, (value & ~LAST) + 1, memory_order_release);
        } while (!(value & LAST));
        return 0;
    }
    value = rounds(atomic_load(word), BATCH, 0, paused);
    double start = now_ns(), end = start;
    long count = 0;
    for (; end - start < WATCH_NS; end = now_ns(), count += BATCH) value = rounds(value, BATCH, 0, paused);
    rounds(value, 1, LAST, paused);
    return (end - start) / (2.0 * count);
}

static double bounce(void) {
    double tight = bounce_by(0), paused = bounce_by(1);
    return tight < paused ? tight : paused;
}

static void meet(void) {
    uint64_t arrived = atomic_fetch_add(&word[MEETING], 1) / 2;
    while (atomic_load_explicit(&word[MEETING], memory_order_acquire) / 2 <= arrived) relax(1);
}

static double exchange_by(int paused, double watch) {
    _Atomic uint64_t *there = &word[THERE], *back = &word[BACK];
    atomic_store_explicit(me == 0 ? back : there, 0, memory_order_relaxed);
    meet();
    uint64_t round = 0, value;
    if (me == 1) {
        do {
            round++;
            while (((value = atomic_load_explicit(there, memory_order_acquire)) & ~LAST) != round) relax(paused);
            atomic_store_explicit(back, round, memory_order_release);
        } while (!(value & LAST));
        return 0;
    }
    double start = 0, end = 0;
    long count = -BATCH;
    for (;;) {
        int over = count > 0 && end - start >= watch;
        for (long i = over ? 1 : BATCH; i > 0; i--) {
            atomic_store_explicit(there, ++round | (over ? LAST : 0), memory_order_release);
            while (atomic_load_explicit(back, memory_order_acquire) != round) relax(paused);
        }
        if (over) return (end - start) / (2.0 * count);
        end = now_ns();
        if ((count += BATCH) == 0) start = end;
    }
}

/* Half a round trip of two cache lines, one for each direction: the mean over the time of a repetition. */
static double exchange(void) {
    double tight = exchange_by(0, WATCH_NS / 2), paused = exchange_by(1, WATCH_NS / 2);
    if (me == 0) atomic_store(&word[CHOICE], paused < tight);
    meet();
    return exchange_by(atomic_load(&word[CHOICE]) != 0, LONG_WATCH_NS);
}

static double latency(long bytes, long count) {
    long warm_up = count / 8 + 1;
    double start = 0;
    for (long i = 0; i < warm_up + count; i++) {
        if (i == warm_up) start = now_ns();
        if (me == 0) MPI_Send(out, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
        MPI_Recv(into, bytes, MPI_BYTE, 1 - me, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (me == 1) MPI_Send(out, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
    return (now_ns() - start) / (2.0 * count);
}

static double stream(int mode, long bytes, long count) {
    MPI_Request requests[MOST];
    int many = window(mode, bytes);
    /* As other benchmarks do: all messages of a window from one buffer, and into one. */
    long stride = mode >= BANDWIDTH_ONE_BUFFER ? 0 : bytes;
    double start = now_ns();
    for (long i = 0; i < count; i++) {
        for (int k = 0; k < many; k++) {
            if (me == 0)
                MPI_Isend(out + k * stride, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[k]);
            else
                MPI_Irecv(into + k * stride, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[k]);
        }
        MPI_Waitall(many, requests, MPI_STATUSES_IGNORE);
        if (me == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
    double messages = (double)count * many, ns = now_ns() - start;
    return is_rate(mode) ? messages * 1e9 / ns : messages * bytes / ns;
}

/* A page of zeros that both ranks map, whether or not the MPI library supports shared memory. */
static void *shared_page(void) {
    char name[64] = "";
    int file = -1;
    if (me == 0) {
        snprintf(name, sizeof name, "/towline-pingpong-%d", (int)getpid());
        file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (file < 0 || ftruncate(file, 4096) != 0) MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Bcast(name, sizeof name, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (me == 1) file = shm_open(name, O_RDWR, 0600);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) shm_unlink(name);
    close(file);
    return page;
}

/* The mode of an argument MODE:BYTES. */
static int mode_of(const char *argument) {
    size_t length = strcspn(argument, ":");
    for (int mode = LATENCY; mode < MODES; mode++)
        if (strlen(NAMES[mode]) == length && strncmp(argument, NAMES[mode], length) == 0) return mode;
    fprintf(stderr, "pingpong: unknown mode %.*s: use latency, bandwidth or rate, the last two also with -one-buffer\n", (int)length, argument);
    MPI_Abort(MPI_COMM_WORLD, 2);
    return RATE;
}

/* The bytes of an argument MODE:BYTES. */
static long bytes_of(const char *argument) {
    const char *colon = strchr(argument, ':');
    long bytes = colon ? atol(colon + 1) : 0;
    if (bytes < 1 || bytes > 4 << 20) {
        fprintf(stderr, "pingpong: %s: the number of bytes must be between 1 and %d\n", argument, 4 << 20);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return bytes;
}

static double measure(int mode, long bytes, long count) {
    return mode == LATENCY ? latency(bytes, count) : stream(mode, bytes, count);
}

/* The number of rounds for which a repetition takes the intended time. */
static long calibrate(int mode, long bytes) {
    long count = 1;
    for (int i = 0; i < 3; i++) {
        double value = measure(mode, bytes, count), many = window(mode, bytes);
        double each = mode == LATENCY ? 2 * value : is_rate(mode) ? many * 1e9 / value : bytes * many / value;
        long enough = TARGET_NS / (each > 1 ? each : 1);
        count = enough < 1 ? 1 : enough > 64 * count ? 64 * count : enough;
        MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    }
    return count;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int size;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2 || argc < 4) {
        fprintf(stderr, "usage: mpirun -n 2 pingpong LABEL REPETITIONS MODE:BYTES...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    word = shared_page();
    out = malloc(8 << 20), into = malloc(8 << 20);
    memset(out, 1, 8 << 20), memset(into, 2, 8 << 20);
    MPI_Barrier(MPI_COMM_WORLD);

    int repetitions = atoi(argv[2]);
    for (int i = 3; i < argc; i++) {
        int mode = mode_of(argv[i]);
        long bytes = bytes_of(argv[i]);
        long count = calibrate(mode, bytes);
        for (int k = 0; k < repetitions; k++) {
            double before = bounce(), exchange_before = exchange();
            MPI_Barrier(MPI_COMM_WORLD);
            double value = measure(mode, bytes, count);
            double exchange_after = exchange(), after = bounce();
            if (me == 0)
                printf("%s %s %ld %.6e 0 %.1f %.1f %.1f %.1f\n", argv[1], NAMES[mode], bytes, value, before, after,
                       exchange_before, exchange_after);
        }
    }
    MPI_Finalize();
    return 0;
}
