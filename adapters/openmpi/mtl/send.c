/* Sends. */
#include "mtl_towline.h"

/* The bytes to send. Open MPI's function forgets the true lower bound of a datatype if the convertor went through
 * opal_convertor_prepare_for_send, as that of persistent and buffered sends does; CONVERTOR_SEND tells. */
static int pack(mtl_towline_request_t *request)
{
    opal_convertor_t *convertor = request->convertor;
    struct iovec part;
    uint32_t parts = 1;
    if (!(convertor->flags & CONVERTOR_SEND)) {
        return ompi_mtl_datatype_pack(convertor, &request->buffer, &request->length, &request->free_buffer);
    }
    request->free_buffer = false;
    request->buffer = NULL;
    opal_convertor_get_packed_size(convertor, &request->length);
    if (0 == request->length) {
        return OMPI_SUCCESS;
    }
    if (!opal_convertor_need_buffers(convertor)) {
        opal_convertor_get_current_pointer(convertor, &request->buffer);
        return OMPI_SUCCESS;
    }
    part.iov_base = malloc(request->length);
    part.iov_len = request->length;
    if (NULL == part.iov_base) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    opal_convertor_pack(convertor, &part, &parts, &request->length);
    request->buffer = part.iov_base;
    request->free_buffer = true;
    return OMPI_SUCCESS;
}

static int mode_of(mca_pml_base_send_mode_t mode)
{
    /* A ready send may be an ordinary one. The memory of a buffered send was copied by pml/cm. */
    return MCA_PML_BASE_SEND_SYNCHRONOUS == mode ? TOWLINE_SEND_SYNCHRONOUS : TOWLINE_SEND_STANDARD;
}

/* Begins a send. `*is_done`: it is complete, and its buffer is free. */
static int begin(mtl_towline_request_t *request, struct ompi_communicator_t *comm, int dest, int tag,
                 struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode, bool *is_done)
{
    bool done = false;
    int code, rc;
    request->convertor = convertor;
    request->is_send = true;
    request->is_done = false;
    request->error = MPI_SUCCESS;
    rc = pack(request);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    while (TOWLINE_ERR_BUSY
           == (code = towline_isend_queued(mtl_towline_comm(comm), request->buffer, request->length, TOWLINE_BYTES, (uint32_t) dest,
                                           (uint32_t) tag, mode_of(mode), (uint64_t) (uintptr_t) request, &done))) {
        opal_progress();
    }
    *is_done = TOWLINE_SUCCESS == code && done;
    if (request->free_buffer && (TOWLINE_SUCCESS != code || *is_done)) {
        free(request->buffer);
    }
    if (TOWLINE_SUCCESS != code) {
        towline_print_error("mtl", "a send");
        return mtl_towline_error(code);
    }
    return OMPI_SUCCESS;
}

int mtl_towline_send(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int dest, int tag,
                     struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode)
{
    mtl_towline_request_t request;
    bool is_done;
    int rc;
    request.is_blocking = true;
    rc = begin(&request, comm, dest, tag, convertor, mode, &is_done);
    return OMPI_SUCCESS != rc || is_done ? rc : mtl_towline_wait(&request);
}

int mtl_towline_isend(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int dest, int tag,
                      struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode, bool blocking,
                      mca_mtl_request_t *mtl_request)
{
    mtl_towline_request_t *request = (mtl_towline_request_t *) mtl_request;
    bool is_done;
    int rc;
    request->is_blocking = false;
    rc = begin(request, comm, dest, tag, convertor, mode, &is_done);
    if (OMPI_SUCCESS == rc && is_done) {
        mtl_request->ompi_req->req_status.MPI_ERROR = MPI_SUCCESS;
        mtl_request->ompi_req->req_status._cancelled = false;
        mtl_request->completion_callback(mtl_request);
    }
    return rc;
}
