/* Promises of core/CONTRACTS.md that the MTL component keeps in a job of one process: the memory of requests (M11). Prints "done". */
#include "../mtl/mtl_towline.h"

#include <sys/mman.h>
#include <unistd.h>

#include "ompi/request/request.h"

#include "check.h"

/* A request as pml/cm makes it: Open MPI's part, and behind it the bytes that the MTL has asked for. */
typedef struct request_t {
    struct mca_mtl_request_t *mtl;
    size_t bytes;
    ompi_request_t of_mpi;
    unsigned ends;
} request_t;

static request_t out, into;

/* A request is complete. Its memory is inaccessible from here on: whoever touches it ends the program. */
static void on_end(struct mca_mtl_request_t *mtl)
{
    request_t *request = mtl == out.mtl ? &out : &into;
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    TRUE(mtl == request->mtl && MPI_SUCCESS == request->of_mpi.req_status.MPI_ERROR);
    request->ends++;
    TRUE(0 == mprotect((void *) ((uintptr_t) mtl & ~(page - 1)), page, PROT_NONE));
}

/* Makes a request whose memory is full of other bytes, and ends where accessible memory ends. */
static void make(request_t *request)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    unsigned char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    request->bytes = sizeof(struct mca_mtl_request_t) + ompi_mtl->mtl_request_size;
    TRUE(MAP_FAILED != (void *) pages && request->bytes <= page && 0 == request->bytes % sizeof(void *));
    TRUE(0 == mprotect(pages + page, page, PROT_NONE));
    memset(pages, 0xa5, page);
    request->mtl = (struct mca_mtl_request_t *) (pages + page - request->bytes);
    memset(&request->of_mpi, 0, sizeof request->of_mpi);
    request->mtl->ompi_req = &request->of_mpi;
    request->mtl->completion_callback = on_end;
    request->ends = 0;
}

static void prepare(opal_convertor_t *convertor, void *buffer, size_t length, bool is_send)
{
    OBJ_CONSTRUCT(convertor, opal_convertor_t);
    if (is_send) {
        opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &(MPI_BYTE->super), length, buffer, 0, convertor);
    } else {
        opal_convertor_copy_and_prepare_for_recv(ompi_mpi_local_convertor, &(MPI_BYTE->super), length, buffer, 0, convertor);
    }
}

/* Sends a message to itself, by requests of its own. */
static void exchange(size_t length, mca_pml_base_send_mode_t mode, bool receive_first)
{
    unsigned char *from = malloc(length + 1), *to = calloc(length + 1, 1);
    opal_convertor_t of_send, of_receive;
    int turn;
    memset(from, 7, length);
    make(&out);
    make(&into);
    prepare(&of_send, from, length, true);
    prepare(&of_receive, to, length, false);
    for (turn = 0; turn < 2; turn++) {
        if (receive_first == (0 == turn)) {
            TRUE(OMPI_SUCCESS == ompi_mtl->mtl_irecv(ompi_mtl, MPI_COMM_WORLD, 0, 5, &of_receive, into.mtl));
        } else {
            TRUE(OMPI_SUCCESS == ompi_mtl->mtl_isend(ompi_mtl, MPI_COMM_WORLD, 0, 5, &of_send, mode, false, out.mtl));
        }
    }
    while (0 == out.ends || 0 == into.ends) {
        opal_progress();
    }
    for (turn = 0; turn < 100; turn++) {
        opal_progress();
    }
    TRUE(1 == out.ends && 1 == into.ends && 0 == memcmp(from, to, length));
    OBJ_DESTRUCT(&of_send);
    OBJ_DESTRUCT(&of_receive);
    free(from);
    free(to);
}

int main(int argc, char **argv)
{
    static const size_t lengths[] = { 0, 1, 100, 10000, 3000000 };
    size_t at;
    MPI_Init(&argc, &argv);
    TRUE(0 == strcmp(ompi_mtl_base_selected_component->mtl_version.mca_component_name, "towline"));
    TRUE(sizeof(mtl_towline_request_t) == sizeof(struct mca_mtl_request_t) + ompi_mtl->mtl_request_size);
    for (at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        exchange(lengths[at], MCA_PML_BASE_SEND_STANDARD, true);
        exchange(lengths[at], MCA_PML_BASE_SEND_STANDARD, false);
        exchange(lengths[at], MCA_PML_BASE_SEND_SYNCHRONOUS, true);
        exchange(lengths[at], MCA_PML_BASE_SEND_SYNCHRONOUS, false);
    }
    puts("done");
    MPI_Finalize();
    return 0;
}
