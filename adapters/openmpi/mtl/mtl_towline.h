/* The MTL component: what its files share. */
#ifndef MTL_TOWLINE_H
#define MTL_TOWLINE_H

#include "ompi_config.h"

#include "ompi/communicator/communicator.h"
#include "ompi/mca/mtl/base/base.h"
#include "ompi/mca/mtl/base/mtl_base_datatype.h"
#include "ompi/mca/mtl/mtl.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"
#include "opal/runtime/opal_progress.h"

#include "../common.h"

#if OMPI_MAJOR_VERSION >= 5
#define TOWLINE_JOB_SIZE() (opal_process_info.num_procs)
#else
#include "ompi/mca/rte/rte.h"
#define TOWLINE_JOB_SIZE() (ompi_process_info.num_procs)
#endif

/* Ids of communicators below this one are indices that all members have agreed on. */
#define TOWLINE_FIRST_EXTENDED_ID (1U << 30)

/* The module, and the state of the component. */
typedef struct mtl_towline_module_t {
    mca_mtl_base_module_t super; /* first */
    towline_context_t context;
    bool is_open;
    uint32_t numbers;
    /* The process that has each number: the last one that was added. It may have the number of one that has ended. */
    opal_process_name_t *owners;
    uint32_t peers;
    int priority;
    towline_settings_t settings;
} mtl_towline_module_t;

/* A request, in the room that pml/cm reserves. It is not zeroed, and may be on the stack. */
typedef struct mtl_towline_request_t {
    struct mca_mtl_request_t super; /* first */
    opal_convertor_t *convertor;
    void *buffer;
    size_t length;
    bool free_buffer;
    bool is_send;
    /* A blocking send, which has no request of Open MPI. */
    bool is_blocking;
    volatile bool is_done;
    int error;
} mtl_towline_request_t;

/* Our part of a communicator. */
typedef struct mtl_towline_comm_t {
    towline_comm_t comm;
} mtl_towline_comm_t;

extern mtl_towline_module_t ompi_mtl_towline;
extern mca_mtl_base_component_2_0_0_t mca_mtl_towline_component;

/* The communicator of Towline. Open MPI has added it before. */
static inline towline_comm_t mtl_towline_comm(struct ompi_communicator_t *comm)
{
    return ((mtl_towline_comm_t *) comm->c_pml_comm)->comm;
}

/* peers.c */
int mtl_towline_add_procs(mca_mtl_base_module_t *mtl, size_t count, struct ompi_proc_t **procs);
int mtl_towline_del_procs(mca_mtl_base_module_t *mtl, size_t count, struct ompi_proc_t **procs);
int mtl_towline_add_comm(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm);
int mtl_towline_del_comm(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm);
int mtl_towline_publish_card(void);

/* progress.c */
int mtl_towline_progress(void);
int mtl_towline_wait(mtl_towline_request_t *request);
int mtl_towline_error(int code);

/* send.c */
int mtl_towline_send(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int dest, int tag,
                     struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode);
int mtl_towline_isend(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int dest, int tag,
                      struct opal_convertor_t *convertor, mca_pml_base_send_mode_t mode, bool blocking,
                      mca_mtl_request_t *request);

/* receive.c */
int mtl_towline_irecv(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag,
                      struct opal_convertor_t *convertor, mca_mtl_request_t *request);
int mtl_towline_imrecv(mca_mtl_base_module_t *mtl, struct opal_convertor_t *convertor, struct ompi_message_t **message,
                       mca_mtl_request_t *request);
int mtl_towline_iprobe(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag, int *flag,
                       struct ompi_status_public_t *status);
int mtl_towline_improbe(mca_mtl_base_module_t *mtl, struct ompi_communicator_t *comm, int source, int tag, int *matched,
                        struct ompi_message_t **message, struct ompi_status_public_t *status);
int mtl_towline_cancel(mca_mtl_base_module_t *mtl, mca_mtl_request_t *request, int flag);

#endif
