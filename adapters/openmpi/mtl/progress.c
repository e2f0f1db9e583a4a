/* Progress, and the ends of operations. */
#include "mtl_towline.h"

/* How many completions are taken at once. */
#define BATCH 16

int mtl_towline_error(int code)
{
    switch (code) {
    case TOWLINE_SUCCESS:
        return OMPI_SUCCESS;
    case TOWLINE_ERR_BUSY:
    case TOWLINE_ERR_NO_MEMORY:
        return OMPI_ERR_OUT_OF_RESOURCE;
    case TOWLINE_ERR_TRUNCATED:
        return MPI_ERR_TRUNCATE;
    case TOWLINE_ERR_PEER_FAILED:
    case TOWLINE_ERR_PEER_FINISHED:
        return OMPI_ERR_UNREACH;
    case TOWLINE_ERR_RANK:
    case TOWLINE_ERR_TAG:
    case TOWLINE_ERR_ARGUMENT:
        return OMPI_ERR_BAD_PARAM;
    default:
        return OMPI_ERROR;
    }
}

/* The error of an operation as MPI knows it. A truncated message is the user's affair; other errors are printed. */
static int mpi_error(const towline_status_t *status, bool is_send)
{
    switch (status->error) {
    case TOWLINE_SUCCESS:
    case TOWLINE_ERR_CANCELLED:
        return MPI_SUCCESS;
    case TOWLINE_ERR_TRUNCATED:
        return MPI_ERR_TRUNCATE;
    case TOWLINE_ERR_PEER_FAILED:
    case TOWLINE_ERR_PEER_FINISHED:
        opal_output(0, "mtl towline: a %s has failed: process %u of its communicator was lost: it ended, or no connection to it is left",
                    is_send ? "send" : "receive", status->source);
        return MPI_ERR_OTHER;
    default:
        opal_output(0, "mtl towline: a %s has failed: %s", is_send ? "send" : "receive", towline_strerror(status->error));
        return MPI_ERR_OTHER;
    }
}

static void complete_receive(mtl_towline_request_t *request, const towline_status_t *status)
{
    struct ompi_request_t *request_of_mpi = request->super.ompi_req;
    size_t bytes = status->bytes < request->length ? status->bytes : request->length;
    request_of_mpi->req_status.MPI_ERROR = mpi_error(status, false);
    if (TOWLINE_ERR_CANCELLED == status->error) {
        request_of_mpi->req_status._cancelled = true;
        bytes = 0;
    } else {
        request_of_mpi->req_status.MPI_SOURCE = (int) status->source;
        request_of_mpi->req_status.MPI_TAG = (int) status->tag;
    }
    request_of_mpi->req_status._ucount = bytes;
    if (request->free_buffer && 0 == bytes) {
        free(request->buffer); /* Open MPI's function frees it only if there are bytes */
    } else {
        ompi_mtl_datatype_unpack(request->convertor, request->buffer, bytes);
    }
}

static void complete(mtl_towline_request_t *request, const towline_status_t *status)
{
    if (!request->is_send) {
        complete_receive(request, status);
        request->super.completion_callback(&request->super);
        return;
    }
    if (request->free_buffer) {
        free(request->buffer);
    }
    request->error = mpi_error(status, true);
    if (request->is_blocking) {
        opal_atomic_wmb();
        request->is_done = true; /* its memory may be gone from here on */
        return;
    }
    request->super.ompi_req->req_status.MPI_ERROR = request->error; /* pml/cm does not set it */
    request->super.ompi_req->req_status._cancelled = TOWLINE_ERR_CANCELLED == status->error;
    request->super.completion_callback(&request->super);
}

int mtl_towline_progress(void)
{
    towline_completion_t completions[BATCH];
    size_t count = 0, i;
    uint32_t events = 0;
    if (TOWLINE_SUCCESS != towline_poll_queue(ompi_mtl_towline.context, completions, BATCH, &count, &events)) {
        return 0; /* a thread that may not use the context */
    }
    for (i = 0; i < count; i++) {
        complete((mtl_towline_request_t *) (uintptr_t) completions[i].user, &completions[i].status);
    }
    /* With 0, Open MPI may give the processor away, which it should not while parts of messages arrive. */
    return 0 != count ? (int) count : 0 != events;
}

int mtl_towline_wait(mtl_towline_request_t *request)
{
    while (!request->is_done) {
        opal_progress();
    }
    opal_atomic_rmb();
    return MPI_SUCCESS == request->error ? OMPI_SUCCESS : request->error;
}
