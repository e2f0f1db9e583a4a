/* Promises of core/CONTRACTS.md that the BTL component keeps in a job of two processes: each by a function with the number of the promise.
 * They use the module that Open MPI has loaded. The arguments are the component's file and the promise. Rank 0 prints "done". */
#include "../btl/btl_towline.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ompi/communicator/communicator.h"
#include "ompi/proc/proc.h"

#include "check.h"

enum { TAG = MCA_BTL_TAG_USR };

static int rank;
static btl_towline_component_t *component;
static mca_btl_base_module_t *btl;
static struct opal_proc_t *other;
static struct mca_btl_base_endpoint_t *endpoint;

/* What the function for frames has seen. */
static struct {
    unsigned frames;
    size_t lengths[32];
} seen;

/* Finds the module, and the endpoint of the other process. */
static void find_module(const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    TRUE(NULL != library); /* Open MPI has loaded it */
    component = dlsym(library, "mca_btl_towline_component");
    TRUE(NULL != component && 0 < component->count);
    btl = &component->modules[0]->super;
    other = &ompi_comm_peer_lookup(MPI_COMM_WORLD, 1 - rank)->super;
    TRUE(OPAL_SUCCESS == btl->btl_add_procs(btl, 1, &other, &endpoint, NULL) && NULL != endpoint);
}

static void check_frame(const mca_btl_base_segment_t *segments, size_t count, void *cbdata)
{
    const unsigned char *bytes = segments[0].seg_addr.pval;
    size_t at;
    TRUE(1 == count && &seen == cbdata); /* base segments only */
    for (at = 0; at < segments[0].seg_len; at++) {
        TRUE((unsigned char) (at * 3) == bytes[at]);
    }
    TRUE(seen.frames < sizeof seen.lengths / sizeof *seen.lengths);
    seen.lengths[seen.frames++] = segments[0].seg_len;
}

#if BTL_VERSION >= 330
static void on_frame(mca_btl_base_module_t *module, const mca_btl_base_receive_descriptor_t *descriptor)
{
    TRUE(btl == module && TAG == descriptor->tag && endpoint == descriptor->endpoint);
    check_frame(descriptor->des_segments, descriptor->des_segment_count, descriptor->cbdata);
}
#else
static void on_frame(mca_btl_base_module_t *module, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t *descriptor, void *cbdata)
{
    TRUE(btl == module && TAG == tag);
    check_frame(descriptor->des_segments, descriptor->des_segment_count, cbdata);
}
#endif

/* Sets the function for frames in both processes. */
static void listen_both(void)
{
    mca_btl_base_active_message_trigger[TAG].cbfunc = on_frame;
    mca_btl_base_active_message_trigger[TAG].cbdata = &seen;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void send_frame(size_t length, uint8_t order)
{
    mca_btl_base_descriptor_t *descriptor = btl->btl_alloc(btl, endpoint, order, length, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    unsigned char *bytes;
    size_t at;
    TRUE(NULL != descriptor && length == descriptor->des_segments[0].seg_len);
    bytes = descriptor->des_segments[0].seg_addr.pval;
    for (at = 0; at < length; at++) {
        bytes[at] = (unsigned char) (at * 3);
    }
    TRUE(0 <= btl->btl_send(btl, endpoint, descriptor, TAG));
}

static void progress_until(const unsigned *count, unsigned wanted)
{
    while (*count < wanted) {
        opal_progress();
    }
}

/* The function gets the tag, the data, and under 3.3.0 the endpoint. */
static void b8(void)
{
    listen_both();
    if (0 == rank) {
        send_frame(100, MCA_BTL_NO_ORDER);
    } else {
        progress_until(&seen.frames, 1);
        TRUE(100 == seen.lengths[0]);
    }
}

/* Frames are whole in the function, in one base segment. */
static void b9(void)
{
    static const size_t lengths[] = { 1, 55, 57, 1000, 4000 };
    unsigned frame;
    listen_both();
    for (frame = 0; frame < sizeof lengths / sizeof *lengths; frame++) {
        if (0 == rank) {
            send_frame(lengths[frame], MCA_BTL_NO_ORDER);
        } else {
            progress_until(&seen.frames, frame + 1);
            TRUE(lengths[frame] == seen.lengths[frame]);
        }
    }
}

static void on_done(mca_btl_base_module_t *module, struct mca_btl_base_endpoint_t *peer, void *local,
                    mca_btl_base_registration_handle_t *handle, void *context, void *data, int status)
{
    TRUE(btl == module && endpoint == peer && OPAL_SUCCESS == status && NULL == data);
    *(unsigned *) context += 1;
}

/* Rank 1 registers memory for an endpoint, and rank 0 puts a word there. The bytes of a handle are all that it has of the other: the
 * handle of this memory, or of other memory of rank 1, as osc/rdma gives now and then in dynamic windows. */
static void put_through(struct mca_btl_base_endpoint_t *only, uint64_t word, bool is_of_other_memory)
{
    size_t size = btl->btl_registration_handle_size, page = (size_t) sysconf(_SC_PAGESIZE);
    static uint64_t memory, other_memory;
    uint64_t at = (uint64_t) (uintptr_t) &memory;
    if (1 == rank) {
        mca_btl_base_registration_handle_t *handle = btl->btl_register_mem(btl, only, &memory, 8, MCA_BTL_REG_FLAG_ACCESS_ANY);
        mca_btl_base_registration_handle_t *other = btl->btl_register_mem(btl, only, &other_memory, 8, MCA_BTL_REG_FLAG_ACCESS_ANY);
        TRUE(NULL != handle && NULL != other);
        MPI_Send(is_of_other_memory ? other : handle, (int) size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        MPI_Send(&at, 1, MPI_UINT64_T, 0, 2, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        TRUE(word == memory && 0 == other_memory);
        TRUE(OPAL_SUCCESS == btl->btl_deregister_mem(btl, handle) && OPAL_SUCCESS == btl->btl_deregister_mem(btl, other));
        return;
    }
    /* The handle ends where accessible memory ends. */
    unsigned char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *handle;
    unsigned done = 0;
    TRUE(MAP_FAILED != (void *) pages && 0 == mprotect(pages + page, page, PROT_NONE));
    handle = pages + page - size;
    MPI_Recv(handle, (int) size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(&at, 1, MPI_UINT64_T, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    TRUE(OPAL_SUCCESS
         == btl->btl_put(btl, endpoint, &word, at, NULL, (mca_btl_base_registration_handle_t *) handle, 8, 0, MCA_BTL_NO_ORDER, on_done,
                         &done, NULL));
    progress_until(&done, 1);
    MPI_Send(NULL, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
    munmap(pages, 2 * page);
}

static void put_to(struct mca_btl_base_endpoint_t *only, uint64_t word)
{
    put_through(only, word, false);
}

static void b26(void)
{
    TRUE(0 < btl->btl_registration_handle_size && btl->btl_registration_handle_size <= 256);
    put_to(NULL, 26);
    put_through(NULL, 126, true);
}

/* NULL, as the comment of the contract says, the wildcard, as its code says, and the endpoint itself. */
static void b27(void)
{
    put_to(NULL, 27);
    put_to(MCA_BTL_ENDPOINT_ANY, 28);
    put_to(endpoint, 29);
}

/* The hook for checkpoints exists in 3.1.0 only, and refuses. There is no memory pool. */
static void b30(void)
{
#if BTL_VERSION < 330
    TRUE(NULL != btl->btl_ft_event && OPAL_ERR_NOT_SUPPORTED == btl->btl_ft_event(0));
#endif
    TRUE(NULL == btl->btl_mpool);
}

/* Open MPI's padding is last in its module, and Towline never writes to it. module.c compares the layout when it is compiled. */
static void b31(void)
{
    size_t at = 0;
#if BTL_VERSION >= 330
    at = sizeof btl->btl_am_data; /* Open MPI's own */
#endif
    put_to(NULL, 31);
    b9();
    TRUE(256 == sizeof btl->padding && (unsigned char *) btl + sizeof *btl == btl->padding + 256);
    for (; at < sizeof btl->padding; at++) {
        TRUE(0 == btl->padding[at]);
    }
}

/* The job runs over the component, which has the version of this interface. */
static void b54(void)
{
    const mca_base_component_t *version = &component->super.btl_version;
    TRUE(3 == version->mca_type_major_version && BTL_VERSION / 10 % 10 == version->mca_type_minor_version);
    TRUE(0 == strcmp(version->mca_type_name, "btl") && 0 == strcmp(version->mca_component_name, "towline"));
    TRUE(btl->btl_component == &component->super);
    b8();
}

/* A card is a copy. A process that has published none is not reachable, which is no error of the call. */
static void x5(void)
{
    mca_base_component_t *version = &component->super.btl_version;
    void *one = NULL, *again = NULL;
    size_t length = 0, again_length = 0;
    /* This process, which was not added as another one. */
    struct opal_proc_t copy = *opal_proc_local_get(), *unknown = &copy;
    struct mca_btl_base_endpoint_t *none = endpoint;
    opal_bitmap_t reachable;
    char first;
    int rc;
    OPAL_MODEX_RECV(rc, version, &other->proc_name, &one, &length);
    TRUE(OPAL_SUCCESS == rc && 0 < length);
    first = *(char *) one;
    memset(one, 0xff, length);
    OPAL_MODEX_RECV(rc, version, &other->proc_name, &again, &again_length);
    TRUE(OPAL_SUCCESS == rc && again_length == length && again != one && *(char *) again == first);
    free(one);
    free(again);

    first = version->mca_component_name[0];
    version->mca_component_name[0] = 'x'; /* no process has published cards of this name */
    OBJ_CONSTRUCT(&reachable, opal_bitmap_t);
    TRUE(OPAL_SUCCESS == opal_bitmap_init(&reachable, 1));
    TRUE(OPAL_SUCCESS == btl->btl_add_procs(btl, 1, &unknown, &none, &reachable));
    TRUE(NULL == none && !opal_bitmap_is_set_bit(&reachable, 0));
    version->mca_component_name[0] = first;

#if BTL_VERSION < 330
    /* A process of another mpirun, which has the number of one that was added. 5.0 has no names of jobs that do not exist. */
    copy = *other;
    copy.proc_name.jobid += 1 << 16;
    none = endpoint;
    TRUE(OPAL_SUCCESS == btl->btl_add_procs(btl, 1, &unknown, &none, &reachable));
    TRUE(NULL == none && !opal_bitmap_is_set_bit(&reachable, 0));
#endif
    OBJ_DESTRUCT(&reachable);
}

/* Frames with the order 0, which ob1 passes, leave at once: their sender needs no answer, and makes no progress any more. It waits
 * for a pipe of the system. */
static void b47(void)
{
    enum { FRAMES = 20 };
    static char fifo[64];
    int frame, opened;
    if (1 == rank) {
        snprintf(fifo, sizeof fifo, "/tmp/towline-b47.%ld", (long) getpid());
        TRUE(0 == mkfifo(fifo, 0600));
    }
    MPI_Bcast(fifo, sizeof fifo, MPI_CHAR, 1, MPI_COMM_WORLD);
    listen_both();
    if (0 == rank) {
        send_frame(8, MCA_BTL_NO_ORDER);
        MPI_Barrier(MPI_COMM_WORLD);
        for (frame = 0; frame < FRAMES; frame++) {
            send_frame(8, 0);
        }
    } else {
        progress_until(&seen.frames, 1);
        MPI_Barrier(MPI_COMM_WORLD);
        progress_until(&seen.frames, 1 + FRAMES);
    }
    opened = open(fifo, 0 == rank ? O_RDONLY : O_WRONLY); /* waits for the other one */
    TRUE(0 <= opened);
    close(opened);
    if (0 == rank) {
        unlink(fifo);
    }
}

static const struct {
    const char *name;
    void (*check)(void);
} rows[] = { { "b8", b8 },   { "b9", b9 },   { "b26", b26 }, { "b27", b27 }, { "b30", b30 },
             { "b31", b31 }, { "b47", b47 }, { "b54", b54 }, { "x5", x5 } };

int main(int argc, char **argv)
{
    size_t row = 0;
    TRUE(3 == argc);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    find_module(argv[1]);
    while (row < sizeof rows / sizeof *rows && 0 != strcmp(rows[row].name, argv[2])) {
        row++;
    }
    TRUE(row < sizeof rows / sizeof *rows);
    rows[row].check();
    MPI_Barrier(MPI_COMM_WORLD);
    if (0 == rank) {
        puts("done");
    }
    MPI_Finalize();
    return 0;
}
