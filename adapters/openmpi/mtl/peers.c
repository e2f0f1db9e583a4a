/* Processes and communicators. */
#include "mtl_towline.h"

/* Marks a process whose card was added, in the place for our endpoint. */
static char added;

int mtl_towline_publish_card(void)
{
    unsigned char card[4096];
    size_t length = 0;
    if (TOWLINE_SUCCESS != towline_worker_card(ompi_mtl_towline.context, card, sizeof card, &length)) {
        towline_print_error("mtl", "the card of this process");
        return OMPI_ERROR;
    }
    return towline_publish_cards(&mca_mtl_towline_component.mtl_version, card, length);
}

static int add_proc(struct ompi_proc_t *proc)
{
    void *card = NULL;
    size_t length = 0;
    uint32_t number = 0;
    int rc;
    if (NULL != proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL]) {
        return OMPI_SUCCESS;
    }
    rc = towline_get_cards(&mca_mtl_towline_component.mtl_version, &proc->super.proc_name, &card, &length);
    if (OMPI_SUCCESS != rc) {
        opal_output(0, "mtl towline: process %s has published no card: run all processes with this component",
                    OMPI_NAME_PRINT(&proc->super.proc_name));
        return rc;
    }
    rc = towline_worker_add_peer(ompi_mtl_towline.context, card, length, &number);
    free(card);
    if (TOWLINE_SUCCESS != rc) {
        towline_print_error("mtl", OMPI_NAME_PRINT(&proc->super.proc_name));
        return mtl_towline_error(rc);
    }
    ompi_mtl_towline.owners[number] = proc->super.proc_name;
    proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] = &added;
    return OMPI_SUCCESS;
}

int mtl_towline_add_procs(mca_mtl_base_module_t *mtl, size_t count, struct ompi_proc_t **procs)
{
    size_t i;
    for (i = 0; i < count; i++) {
        int rc = add_proc(procs[i]);
        if (OMPI_SUCCESS != rc) {
            return rc;
        }
    }
    return OMPI_SUCCESS;
}

int mtl_towline_del_procs(mca_mtl_base_module_t *mtl, size_t count, struct ompi_proc_t **procs)
{
    size_t i;
    for (i = 0; i < count; i++) {
        const opal_process_name_t name = procs[i]->super.proc_name;
        uint32_t number = towline_number_of(name, ompi_mtl_towline.numbers);
        if (NULL == procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL]) {
            continue;
        }
        procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] = NULL;
        /* This process itself cannot be removed, which needs no message. */
        if (ompi_mtl_towline.is_open && procs[i] != ompi_proc_local_proc && name.jobid == ompi_mtl_towline.owners[number].jobid
            && name.vpid == ompi_mtl_towline.owners[number].vpid) {
            (void) towline_worker_remove_peer(ompi_mtl_towline.context, number);
        }
    }
    return OMPI_SUCCESS;
}

/* The id of a communicator, which is the same in all its members.
 *
 * Since 5.0 the members of a communicator that was made from a group (as those of a session) have each an index of their own, and
 * share an extended context id. Its base is the number that the PMIx server gave to this group, and its other part is 0 unless the
 * id was derived from that of another communicator, which Open MPI 5.0 does not do. PRRTE counts from 2^32 - 1 down, so that the
 * lower 30 bits are unique for the first 2^30 groups that one mpirun makes. */
static int comm_id(struct ompi_communicator_t *comm, uint32_t *id)
{
#if OMPI_MAJOR_VERSION >= 5
    if (!OMPI_COMM_IS_GLOBAL_INDEX(comm)) {
        if (0 != comm->c_contextid.cid_sub.u64) {
            opal_output(0, "mtl towline: a communicator has a derived context id, which this component does not know: Open MPI is "
                           "newer than the component");
            return OMPI_ERR_NOT_SUPPORTED;
        }
        *id = TOWLINE_FIRST_EXTENDED_ID | (uint32_t) (comm->c_contextid.cid_base & (TOWLINE_FIRST_EXTENDED_ID - 1));
        return OMPI_SUCCESS;
    }
    *id = comm->c_index;
#else
    *id = comm->c_contextid;
#endif
    return OMPI_SUCCESS;
}

int mtl_towline_add_comm(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm)
{
    bool is_inter = OMPI_COMM_IS_INTER(comm);
    int size = is_inter ? ompi_comm_remote_size(comm) : ompi_comm_size(comm);
    uint32_t *members = malloc((size > 0 ? size : 1) * sizeof *members);
    mtl_towline_comm_t *made = malloc(sizeof *made);
    uint32_t id;
    int rank, rc = NULL == members || NULL == made ? OMPI_ERR_OUT_OF_RESOURCE : comm_id(comm, &id);
    for (rank = 0; OMPI_SUCCESS == rc && rank < size; rank++) {
        struct ompi_proc_t *proc = ompi_comm_peer_lookup(comm, rank);
        if (NULL == proc) {
            rc = OMPI_ERR_NOT_FOUND;
            break;
        }
        rc = add_proc(proc);
        members[rank] = towline_number_of(proc->super.proc_name, ompi_mtl_towline.numbers);
    }
    if (OMPI_SUCCESS == rc) {
        uint32_t own = is_inter ? TOWLINE_NO_RANK : (uint32_t) ompi_comm_rank(comm);
        int code = towline_comm_create(ompi_mtl_towline.context, id, members, size, own, &made->comm);
        if (TOWLINE_SUCCESS != code) {
            towline_print_error("mtl", "a communicator");
            rc = mtl_towline_error(code);
        }
    }
    free(members);
    if (OMPI_SUCCESS != rc) {
        free(made);
        made = NULL;
    }
    comm->c_pml_comm = (struct mca_pml_comm_t *) made;
    return rc;
}

int mtl_towline_del_comm(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm)
{
    mtl_towline_comm_t *made = (mtl_towline_comm_t *) comm->c_pml_comm;
    if (NULL != made) {
        if (ompi_mtl_towline.is_open) {
            (void) towline_comm_free(made->comm);
        }
        free(made);
        comm->c_pml_comm = NULL;
    }
    return OMPI_SUCCESS;
}
