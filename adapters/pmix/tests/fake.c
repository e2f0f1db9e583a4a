/* A library with the functions of PMIx that the crate uses, for a job of two ranks of which this process is rank 0. The variable
 * FAKE_PMIX says what goes wrong. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char nspace[256]; uint32_t rank; } proc_t;
typedef struct { char *bytes; size_t size; } bytes_t;
typedef struct {
    uint16_t type;
    union { bool flag; int integer; uint32_t uint32; char *string; proc_t *proc; bytes_t bytes; void *longest[3]; } data;
} value_t;
typedef struct { char key[512]; uint32_t flags; value_t value; } info_t;
typedef void (*done_t)(int, void *);
typedef void (*handled_t)(int, info_t *, size_t, done_t, void *, void *);
typedef void (*handler_t)(size_t, int, const proc_t *, info_t *, size_t, info_t *, size_t, handled_t, void *);

static value_t put;
static handler_t handler;

static bool fails(const char *what) {
    const char *wanted = getenv("FAKE_PMIX");
    return wanted != NULL && strcmp(wanted, what) == 0;
}

/* Lines come in the order of the calls, also those that the test prints. */
__attribute__((constructor)) static void print_at_once(void) { setvbuf(stdout, NULL, _IONBF, 0); }

const char *PMIx_Get_version(void) { return "OpenPMIx 7.8.9, a fake"; }
const char *PMIx_Error_string(int status) { return status == -25 ? "UNREACHABLE" : "OTHER"; }

int PMIx_Init(proc_t *proc, info_t *infos, size_t count) {
    (void)infos, (void)count;
    if (fails("init")) return -25;
    strcpy(proc->nspace, getenv("PMIX_NAMESPACE"));
    proc->rank = 0;
    return 0;
}

int PMIx_Finalize(const info_t *infos, size_t count) {
    (void)infos, (void)count;
    puts("finalize");
    return fails("finalize") ? -25 : 0;
}

int PMIx_Put(uint8_t scope, const char *key, value_t *value) {
    if (scope != 3 || value->type != 27) return -1;
    printf("put %s\n", key);
    put = *value;
    put.data.bytes.bytes = malloc(value->data.bytes.size);
    memcpy(put.data.bytes.bytes, value->data.bytes.bytes, value->data.bytes.size);
    return 0;
}

int PMIx_Commit(void) { return 0; }

int PMIx_Get(const proc_t *proc, const char *key, const info_t *infos, size_t count, value_t **into) {
    value_t *value = *into = calloc(1, sizeof *value);
    (void)infos, (void)count;
    if (strcmp(key, "pmix.job.size") == 0) {
        value->type = fails("size") ? 3 : 14;
        if (fails("size")) value->data.string = strdup("many");
        else value->data.uint32 = 2;
    } else if (strcmp(key, "pmix.lpeers") == 0) {
        value->type = 3;
        value->data.string = strdup(fails("peers") ? "some" : "0,1");
    } else if (proc->rank == 1 && fails("type")) {
        value->type = 6;
    } else if (proc->rank == 1 && fails("null")) {
        value->type = 27;
        value->data.bytes.size = 40;
    } else {
        /* Rank 1 gives what rank 0 has given, without its last byte. */
        value->type = 27;
        value->data.bytes.size = put.data.bytes.size - (proc->rank == 1);
        value->data.bytes.bytes = malloc(put.data.bytes.size);
        memcpy(value->data.bytes.bytes, put.data.bytes.bytes, put.data.bytes.size);
    }
    return 0;
}

struct fence { done_t done; void *data; };

static void *end_fence(void *argument) {
    struct fence *fence = argument;
    fence->done(fails("fence") ? -25 : 0, fence->data);
    free(fence);
    return NULL;
}

int PMIx_Fence_nb(const proc_t *procs, size_t nprocs, const info_t *infos, size_t count, done_t done, void *data) {
    struct fence *fence = malloc(sizeof *fence);
    pthread_t thread;
    (void)procs, (void)nprocs, (void)infos, (void)count;
    fence->done = done, fence->data = data;
    if (fails("at once")) return free(fence), -157;
    if (fails("refused")) return free(fence), -25;
    if (fails("stuck") || fails("dead")) return 0; /* what it refers to stays */
    return pthread_create(&thread, NULL, end_fence, fence);
}

int PMIx_Abort(int status, const char *text, proc_t *procs, size_t count) {
    (void)procs, (void)count;
    printf("abort %d: %s\n", status, text);
    return 0;
}

static void release(void *data) { puts(data); }

int PMIx_Job_control_nb(const proc_t *targets, size_t ntargets, const info_t *infos, size_t count,
                        void (*done)(int, info_t *, size_t, void *, void (*)(void *), void *), void *data) {
    (void)targets;
    if (ntargets != 0 || count != 1 || infos->value.type != 3) return -27;
    printf("%s %s\n", infos->key, infos->value.data.string);
    if (fails("at once")) return -157;
    done(fails("refused") ? -25 : 0, NULL, 0, data, release, "released");
    return 0;
}

static void handled(int status, info_t *infos, size_t count, done_t done, void *data, void *own) {
    (void)infos, (void)count, (void)done, (void)data;
    printf("handled %d %s\n", status, (const char *)own);
}

void PMIx_Register_event_handler(int *codes, size_t count, info_t *infos, size_t ninfos, handler_t handle,
                                 void (*registered)(int, size_t, void *), void *data) {
    proc_t affected = {"", 1}, source = {"launcher", 0};
    info_t event = {"pmix.evproc", 0, {22, {.proc = &affected}}};
    (void)codes, (void)infos, (void)ninfos;
    strcpy(affected.nspace, getenv("PMIX_NAMESPACE"));
    handler = handle;
    printf("register %zu codes\n", count);
    registered(0, 5, data);
    if (fails("dead")) {
        handle(5, -402, &source, &event, 1, NULL, 0, handled, "once");
        handle(5, -402, &source, &event, 1, NULL, 0, handled, "twice");
    }
}

void PMIx_Deregister_event_handler(size_t number, done_t done, void *data) {
    (void)done, (void)data;
    printf("deregister %zu\n", number);
}

int PMIx_Notify_event(int status, const proc_t *source, uint8_t range, const info_t *infos, size_t count, done_t done, void *data) {
    (void)infos, (void)count, (void)done, (void)data;
    printf("notify %d of %s:%u in %u\n", status, source->nspace, source->rank, range);
    return 0;
}
