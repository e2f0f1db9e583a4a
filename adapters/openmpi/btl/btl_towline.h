/* The BTL component: what its files share. It is written for the BTL interface 3.1.0 (Open MPI 4.1) and 3.3.0 (Open MPI 5.0). */
#ifndef BTL_TOWLINE_H
#define BTL_TOWLINE_H

#include "opal_config.h"

#include <stdio.h>
#include <string.h>

#include "opal/class/opal_bitmap.h"
#include "opal/class/opal_free_list.h"
#include "opal/constants.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/base/btl_base_error.h"
#include "opal/mca/btl/btl.h"

#include "../common.h"

/* Several links of several transports. */
#define BTL_TOWLINE_MODULES 256

/* A peer of a module. */
struct mca_btl_base_endpoint_t {
    struct mca_btl_base_endpoint_t *next;
    towline_btl_endpoint_t handle;
    opal_process_name_t name;
};

/* Registered memory. Peers get copies of the key alone, which is as long as `btl_registration_handle_size` says. */
struct mca_btl_base_registration_handle_t {
    unsigned char key[64];
    towline_btl_registration_t registration;
    struct mca_btl_base_registration_handle_t *next;
};

/* A module: one rail of Towline. */
typedef struct btl_towline_module_t {
    mca_btl_base_module_t super; /* first */
    towline_btl_t btl;
    char name[16];
    /* Which one it is among modules of this name. */
    unsigned ordinal;
    /* For the lists below. */
    opal_mutex_t lock;
    struct mca_btl_base_endpoint_t *endpoints;
    /* The module ends. What has used it may be unloaded, so that no function is called any more. */
    bool is_closing;
    /* The process itself, for one-sided operations. */
    struct mca_btl_base_endpoint_t own;
    /* Memory that could not be deregistered yet, since an operation of a peer used it. */
    struct mca_btl_base_registration_handle_t *retired;
    mca_btl_base_module_error_cb_fn_t on_error;
} btl_towline_module_t;

/* A descriptor. */
typedef struct btl_towline_frag_t {
    mca_btl_base_descriptor_t base; /* first */
    /* The module's memory, and the user's. */
    mca_btl_base_segment_t segments[2];
    towline_btl_descriptor_t descriptor;
    /* The length of the first segment, as Towline knows it. */
    size_t length;
    btl_towline_module_t *module;
    struct mca_btl_base_endpoint_t *endpoint;
} btl_towline_frag_t;
OBJ_CLASS_DECLARATION(btl_towline_frag_t);

/* A one-sided operation in progress. */
typedef struct btl_towline_operation_t {
    opal_free_list_item_t super; /* first */
    btl_towline_module_t *module;
    struct mca_btl_base_endpoint_t *endpoint;
    void *local;
    mca_btl_base_registration_handle_t *local_handle;
    mca_btl_base_rdma_completion_fn_t function;
    void *context;
    void *data;
    /* Where the old value of a word goes: bytes of the word, or 0. */
    unsigned value_bytes;
} btl_towline_operation_t;
OBJ_CLASS_DECLARATION(btl_towline_operation_t);

/* The component, with the state that all modules share. */
typedef struct btl_towline_component_t {
    mca_btl_base_component_3_0_0_t super; /* first */
    btl_towline_module_t *modules[BTL_TOWLINE_MODULES];
    unsigned count;
    /* The one of shared memory, or NULL. */
    btl_towline_module_t *shared_memory;
    /* How many modules are open. */
    unsigned open;
    /* How many processes the job has, and whether they were added. */
    uint32_t job_size;
    bool has_job;
    unsigned numbers;
    unsigned peers;
    opal_free_list_t frags;
    opal_free_list_t operations;
    bool has_lists;
    towline_settings_t settings;
    /* The sums of the counts of modules that were closed. */
    towline_btl_counters_t counters;
} btl_towline_component_t;

/* Tag 16 is that of Towline's modules. That of Open MPI's modules, from 5.0 on, is the same, so it travels as another one. */
#define BTL_TOWLINE_TAG_TAKEN 0x10
#define BTL_TOWLINE_TAG_INSTEAD 0x1f

extern btl_towline_component_t mca_btl_towline_component;
extern mca_btl_base_module_t btl_towline_template;

/* errors.c */
int btl_towline_error(int code);

/* peers.c */
int btl_towline_publish_cards(void);
int btl_towline_add_own(btl_towline_module_t *module);
int btl_towline_add_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                          struct mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable);
int btl_towline_del_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                          struct mca_btl_base_endpoint_t **endpoints);
int btl_towline_register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t function);
void btl_towline_on_error(const towline_btl_loss_t *loss, void *state);

/* send.c */
mca_btl_base_descriptor_t *btl_towline_alloc(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, uint8_t order,
                                             size_t size, uint32_t flags);
int btl_towline_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor);
mca_btl_base_descriptor_t *btl_towline_prepare_src(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                                   struct opal_convertor_t *convertor, uint8_t order, size_t reserve, size_t *size,
                                                   uint32_t flags);
int btl_towline_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, mca_btl_base_descriptor_t *descriptor,
                     mca_btl_base_tag_t tag);
int btl_towline_sendi(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, struct opal_convertor_t *convertor,
                      void *header, size_t header_size, size_t payload_size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
                      mca_btl_base_descriptor_t **descriptor);

/* receive.c */
void btl_towline_on_frame(const towline_btl_received_t *received, void *state);
int btl_towline_listen(btl_towline_module_t *module);

/* one_sided.c */
mca_btl_base_registration_handle_t *btl_towline_register_mem(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                                             void *base, size_t size, uint32_t flags);
int btl_towline_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle);
void btl_towline_deregister_retired(btl_towline_module_t *module);
int btl_towline_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local, uint64_t remote,
                    mca_btl_base_registration_handle_t *local_handle, mca_btl_base_registration_handle_t *remote_handle, size_t size,
                    int flags, int order, mca_btl_base_rdma_completion_fn_t function, void *context, void *data);
int btl_towline_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local, uint64_t remote,
                    mca_btl_base_registration_handle_t *local_handle, mca_btl_base_registration_handle_t *remote_handle, size_t size,
                    int flags, int order, mca_btl_base_rdma_completion_fn_t function, void *context, void *data);
int btl_towline_atomic_op(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, uint64_t remote,
                          mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t op, uint64_t operand, int flags,
                          int order, mca_btl_base_rdma_completion_fn_t function, void *context, void *data);
int btl_towline_atomic_fop(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local, uint64_t remote,
                           mca_btl_base_registration_handle_t *local_handle, mca_btl_base_registration_handle_t *remote_handle,
                           mca_btl_base_atomic_op_t op, uint64_t operand, int flags, int order,
                           mca_btl_base_rdma_completion_fn_t function, void *context, void *data);
int btl_towline_atomic_cswap(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local, uint64_t remote,
                             mca_btl_base_registration_handle_t *local_handle, mca_btl_base_registration_handle_t *remote_handle,
                             uint64_t compare, uint64_t value, int flags, int order, mca_btl_base_rdma_completion_fn_t function,
                             void *context, void *data);
int btl_towline_flush(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint);

/* module.c */
void btl_towline_set_attributes(mca_btl_base_module_t *super, const towline_btl_attributes_t *own);
btl_towline_module_t *btl_towline_module_new(towline_btl_t btl);
int btl_towline_finalize(mca_btl_base_module_t *btl);
int btl_towline_progress(void);

#endif
