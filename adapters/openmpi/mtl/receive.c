/* Receives, probes and cancellation. */
#include "mtl_towline.h"

static int prepare(mtl_towline_request_t *request, struct opal_convertor_t *convertor)
{
    request->convertor = convertor;
    request->is_send = false;
    request->is_blocking = false;
    request->is_done = false;
    return ompi_mtl_datatype_recv_buf(convertor, &request->buffer, &request->length, &request->free_buffer);
}

/* The outcome of a function that begins a receive. */
static int begun(mtl_towline_request_t *request, int code)
{
    if (TOWLINE_SUCCESS == code) {
        return OMPI_SUCCESS;
    }
    if (request->free_buffer) {
        free(request->buffer);
    }
    towline_print_error("mtl", "a receive");
    return mtl_towline_error(code);
}

int mtl_towline_irecv(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag,
                      struct opal_convertor_t *convertor, mca_mtl_request_t *mtl_request)
{
    mtl_towline_request_t *request = (mtl_towline_request_t *) mtl_request;
    int code, rc = prepare(request, convertor);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    /* MPI_ANY_SOURCE and MPI_ANY_TAG are -1, as are Towline's. */
    while (TOWLINE_ERR_BUSY
           == (code = towline_irecv_queued(mtl_towline_comm(comm), request->buffer, request->length, TOWLINE_BYTES,
                                           (uint32_t) source, (uint32_t) tag, (uint64_t) (uintptr_t) request))) {
        opal_progress();
    }
    return begun(request, code);
}

/* Fills in a status of a probe, which must not touch MPI_ERROR. */
static void fill(struct ompi_status_public_t *status, const towline_status_t *found)
{
    if (MPI_STATUS_IGNORE != status) {
        status->MPI_SOURCE = (int) found->source;
        status->MPI_TAG = (int) found->tag;
        status->_ucount = found->bytes;
        status->_cancelled = 0;
    }
}

int mtl_towline_iprobe(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag, int *flag,
                       struct ompi_status_public_t *status)
{
    towline_status_t found;
    bool is_there = false;
    int code = towline_iprobe(mtl_towline_comm(comm), (uint32_t) source, (uint32_t) tag, &is_there, &found);
    if (TOWLINE_SUCCESS != code) {
        towline_print_error("mtl", "a probe");
        return mtl_towline_error(code);
    }
    *flag = is_there;
    if (is_there) {
        fill(status, &found);
    } else {
        opal_progress(); /* a message may wait for another operation to end */
    }
    return OMPI_SUCCESS;
}

int mtl_towline_improbe(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag, int *matched,
                        struct ompi_message_t **message, struct ompi_status_public_t *status)
{
    towline_message_t *taken = malloc(sizeof *taken);
    towline_status_t found;
    bool is_there = false;
    int code;
    if (NULL == taken) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    code = towline_improbe(mtl_towline_comm(comm), (uint32_t) source, (uint32_t) tag, &is_there, taken, &found);
    *matched = TOWLINE_SUCCESS == code && is_there;
    if (!*matched) {
        free(taken);
        *message = MPI_MESSAGE_NULL;
        if (TOWLINE_SUCCESS != code) {
            towline_print_error("mtl", "a matched probe");
            return mtl_towline_error(code);
        }
        opal_progress();
        return OMPI_SUCCESS;
    }
    fill(status, &found);
    *message = ompi_message_alloc();
    if (NULL == *message) {
        (void) towline_message_discard(taken);
        free(taken);
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    (*message)->comm = comm;
    (*message)->req_ptr = taken;
    (*message)->peer = (int) found.source;
    (*message)->count = found.bytes;
    return OMPI_SUCCESS;
}

int mtl_towline_imrecv(mca_mtl_base_module_t *mtl, struct opal_convertor_t *convertor, struct ompi_message_t **message,
                       mca_mtl_request_t *mtl_request)
{
    mtl_towline_request_t *request = (mtl_towline_request_t *) mtl_request;
    towline_message_t *taken = (*message)->req_ptr;
    int code, rc = prepare(request, convertor);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    while (TOWLINE_ERR_BUSY
           == (code = towline_imrecv_queued(taken, request->buffer, request->length, TOWLINE_BYTES,
                                            (uint64_t) (uintptr_t) request))) {
        opal_progress();
    }
    free(taken);
    ompi_message_return(*message);
    *message = MPI_MESSAGE_NULL;
    return begun(request, code);
}

int mtl_towline_cancel(mca_mtl_base_module_t *mtl, mca_mtl_request_t *mtl_request, int flag)
{
    bool is_cancelled = false;
    /* The end of the operation comes by the queue, cancelled or not. */
    if (TOWLINE_SUCCESS == towline_cancel_queued(ompi_mtl_towline.context, (uint64_t) (uintptr_t) mtl_request, &is_cancelled)
        && is_cancelled) {
        mtl_towline_progress();
    }
    return OMPI_SUCCESS;
}
