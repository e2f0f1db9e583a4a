/* Modules: their start from the template, progress, and their end. */
#include "btl_towline.h"

/* How long a module waits at its end for frames to leave. */
#define CLOSE_MS 10000

#if BTL_VERSION >= 330
#define AM_FLAGS (MCA_BTL_FLAGS_PUT_AM | MCA_BTL_FLAGS_GET_AM | MCA_BTL_FLAGS_ATOMIC_AM_FOP)
#else
/* Their values in later interfaces. */
#define AM_FLAGS (0x100000 | 0x200000 | 0x400000)
#endif
#define ONE_SIDED_FLAGS (MCA_BTL_FLAGS_RDMA | MCA_BTL_FLAGS_ATOMIC_OPS | MCA_BTL_FLAGS_ATOMIC_FOPS | MCA_BTL_FLAGS_RDMA_FLUSH)
#define PUT_AM 0x100000
#define GET_AM 0x200000

#if BTL_VERSION != 310 && BTL_VERSION != 330
#error "this interface of BTLs is not known: Open MPI 4.1 has 3.1.0, and 5.0 has 3.3.0"
#endif
/* What Towline and Open MPI must agree about, and the room that later interfaces have for more. */
_Static_assert(TOWLINE_BTL_LOCAL_WRITE == MCA_BTL_REG_FLAG_LOCAL_WRITE && TOWLINE_BTL_REMOTE_READ == MCA_BTL_REG_FLAG_REMOTE_READ
                   && TOWLINE_BTL_REMOTE_WRITE == MCA_BTL_REG_FLAG_REMOTE_WRITE
                   && TOWLINE_BTL_REMOTE_ATOMIC == MCA_BTL_REG_FLAG_REMOTE_ATOMIC
                   && TOWLINE_BTL_ACCESS_ANY == MCA_BTL_REG_FLAG_ACCESS_ANY && TOWLINE_BTL_KEY_MAX == MCA_BTL_REG_HANDLE_MAX_SIZE,
               "rights and lengths of registered memory");
_Static_assert(sizeof(mca_btl_base_segment_t) == 16 && sizeof(mca_btl_base_header_t) == 1 && MCA_BTL_NO_ORDER == 255, "segments");
_Static_assert(sizeof ((mca_btl_base_module_t *) NULL)->padding == 256, "the padding of a module");
_Static_assert(offsetof(mca_btl_base_module_t, padding) + 256 == sizeof(mca_btl_base_module_t)
                   && offsetof(btl_towline_module_t, btl) >= sizeof(mca_btl_base_module_t),
               "the padding is last, and is Open MPI's");
#if BTL_VERSION >= 330
_Static_assert(offsetof(mca_btl_base_module_t, btl_am_data) == offsetof(mca_btl_base_module_t, padding), "it is in the padding");
#endif

static void dump(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, int verbose)
{
    btl_towline_module_t *module = (btl_towline_module_t *) btl;
    towline_btl_endpoint_t none = { 0, module->btl };
    char text[2048] = "";
    (void) towline_btl_dump(module->btl, NULL == endpoint ? none : endpoint->handle, verbose, text, sizeof text, NULL);
    opal_output(0, "btl towline: %s", text);
}

#if BTL_VERSION < 330
static int ft_event(int state)
{
    return OPAL_ERR_NOT_SUPPORTED;
}
#endif

/* With atomics, osc/rdma of 4.1 returns wrong old values to MPI_Get_accumulate of a derived type. Its own BTLs have none on floating-point
 * numbers, so that programs with those do not meet this fault. */
#if BTL_VERSION >= 330
#define FLOAT_ATOMICS MCA_BTL_ATOMIC_SUPPORTS_FLOAT
#else
#define FLOAT_ATOMICS 0
#endif

/* Zero stands for the value of the transport, where the user gives none. */
mca_btl_base_module_t btl_towline_template = {
    .btl_component = &mca_btl_towline_component.super,
    .btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_SEND_INPLACE | MCA_BTL_FLAGS_RDMA | MCA_BTL_FLAGS_ATOMIC_OPS
                 | MCA_BTL_FLAGS_ATOMIC_FOPS | MCA_BTL_FLAGS_RDMA_FLUSH | MCA_BTL_FLAGS_HETEROGENEOUS_RDMA,
    .btl_atomic_flags = MCA_BTL_ATOMIC_SUPPORTS_ADD | MCA_BTL_ATOMIC_SUPPORTS_AND | MCA_BTL_ATOMIC_SUPPORTS_OR
                        | MCA_BTL_ATOMIC_SUPPORTS_XOR | MCA_BTL_ATOMIC_SUPPORTS_LAND | MCA_BTL_ATOMIC_SUPPORTS_LOR
                        | MCA_BTL_ATOMIC_SUPPORTS_LXOR | MCA_BTL_ATOMIC_SUPPORTS_SWAP | MCA_BTL_ATOMIC_SUPPORTS_MIN
                        | MCA_BTL_ATOMIC_SUPPORTS_MAX | MCA_BTL_ATOMIC_SUPPORTS_32BIT | FLOAT_ATOMICS
                        | MCA_BTL_ATOMIC_SUPPORTS_CSWAP | MCA_BTL_ATOMIC_SUPPORTS_GLOB,
    .btl_rdma_pipeline_send_length = 64 << 10,
    .btl_rdma_pipeline_frag_size = 1 << 20,
    .btl_add_procs = btl_towline_add_procs,
    .btl_del_procs = btl_towline_del_procs,
    .btl_finalize = btl_towline_finalize,
    .btl_alloc = btl_towline_alloc,
    .btl_free = btl_towline_free,
    .btl_prepare_src = btl_towline_prepare_src,
    .btl_send = btl_towline_send,
    .btl_sendi = btl_towline_sendi,
    .btl_put = btl_towline_put,
    .btl_get = btl_towline_get,
    .btl_dump = dump,
    .btl_atomic_op = btl_towline_atomic_op,
    .btl_atomic_fop = btl_towline_atomic_fop,
    .btl_atomic_cswap = btl_towline_atomic_cswap,
    .btl_register_mem = btl_towline_register_mem,
    .btl_deregister_mem = btl_towline_deregister_mem,
    .btl_register_error = btl_towline_register_error,
#if BTL_VERSION < 330
    .btl_ft_event = ft_event,
#endif
    .btl_flush = btl_towline_flush,
};

static size_t smaller(size_t given, size_t possible)
{
    return 0 != given && given < possible ? given : possible;
}

/* The attributes of a module: those of its transport, within what the user has set. */
void btl_towline_set_attributes(mca_btl_base_module_t *super, const towline_btl_attributes_t *own)
{
    uint32_t flags = own->flags & ~(uint32_t) AM_FLAGS;
    /* The calls are the same, whether a device or active messages do the work. */
    flags |= own->flags & PUT_AM ? MCA_BTL_FLAGS_PUT : 0;
    flags |= own->flags & GET_AM ? MCA_BTL_FLAGS_GET : 0;
#if BTL_VERSION >= 330
    super->btl_flags |= own->flags & MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION;
#endif
    super->btl_flags &= flags;
    super->btl_atomic_flags &= own->atomics;
    super->btl_eager_limit = smaller(super->btl_eager_limit, own->eager_limit);
    super->btl_rndv_eager_limit = smaller(super->btl_rndv_eager_limit, own->rendezvous_eager_limit);
    super->btl_max_send_size = smaller(super->btl_max_send_size, own->max_send_size);
    super->btl_exclusivity = 0 != super->btl_exclusivity ? super->btl_exclusivity : own->exclusivity;
    super->btl_latency = 0 != super->btl_latency ? super->btl_latency : own->latency;
    super->btl_bandwidth = 0 != super->btl_bandwidth ? super->btl_bandwidth : own->bandwidth;
    super->btl_registration_handle_size = own->key_bytes;
    if (0 == own->key_bytes) {
        /* No memory can be registered, so peers have nothing to access, and no call gets a handle. */
        super->btl_flags &= ~(uint32_t) ONE_SIDED_FLAGS;
        super->btl_register_mem = NULL;
        super->btl_deregister_mem = NULL;
    }
    super->btl_put_limit = smaller(super->btl_put_limit, own->put_limit);
    super->btl_get_limit = smaller(super->btl_get_limit, own->get_limit);
    super->btl_put_alignment = own->put_alignment > 1 ? own->put_alignment : 0;
    super->btl_get_alignment = own->get_alignment > 1 ? own->get_alignment : 0;
    super->btl_put_local_registration_threshold = own->put_registration_threshold;
    super->btl_get_local_registration_threshold = own->get_registration_threshold;
}

btl_towline_module_t *btl_towline_module_new(towline_btl_t btl)
{
    btl_towline_module_t *module = calloc(1, sizeof *module);
    towline_btl_attributes_t own;
    unsigned other;
    if (NULL == module || TOWLINE_SUCCESS != towline_btl_attributes(btl, &own)
        || own.key_bytes > sizeof ((mca_btl_base_registration_handle_t *) NULL)->key) {
        free(module);
        return NULL;
    }
    module->super = btl_towline_template;
    OBJ_CONSTRUCT(&module->lock, opal_mutex_t);
    module->btl = btl;
    memcpy(module->name, own.name, sizeof module->name);
    for (other = 0; other < mca_btl_towline_component.count; other++) {
        module->ordinal += 0 == strcmp(mca_btl_towline_component.modules[other]->name, module->name);
    }
    btl_towline_set_attributes(&module->super, &own);
    if (OPAL_SUCCESS != btl_towline_listen(module) || OPAL_SUCCESS != btl_towline_add_own(module)
        || TOWLINE_SUCCESS != towline_btl_on_error(btl, btl_towline_on_error, module)) {
        OBJ_DESTRUCT(&module->lock);
        free(module);
        return NULL;
    }
    return module;
}

/* One of this many calls makes progress on modules that have been idle for a while. A process whose peers are all reached by shared
 * memory has such modules, too. */
#define CALLS_PER_LOOK 16
/* For how many calls all modules are looked at each time after an event of one: longer than an answer takes over a fast network. */
#define BUSY_CALLS 4096

static inline int progress(btl_towline_module_t *module)
{
    uint32_t events = 0;
    (void) towline_btl_progress(module->btl, &events);
    if (OPAL_UNLIKELY(NULL != module->retired)) {
        btl_towline_deregister_retired(module);
    }
    return (int) events;
}

/* Makes progress on all modules but that of shared memory. */
static int progress_others(const btl_towline_component_t *component)
{
    int events = 0;
    unsigned index;
    for (index = 0; index < component->count; index++) {
        btl_towline_module_t *module = component->modules[index];
        events += NULL != module && module != component->shared_memory ? progress(module) : 0;
    }
    return events;
}

int btl_towline_progress(void)
{
    /* Several threads may be here. A lost update delays a look. */
    static unsigned calls, busy_until;
    btl_towline_component_t *component = &mca_btl_towline_component;
    btl_towline_module_t *shared_memory = component->shared_memory;
    const unsigned call = __atomic_load_n(&calls, __ATOMIC_RELAXED) + 1;
    const bool is_busy = (int) (__atomic_load_n(&busy_until, __ATOMIC_RELAXED) - call) > 0;
    int events = OPAL_LIKELY(NULL != shared_memory) ? progress(shared_memory) : 0;
    __atomic_store_n(&calls, call, __ATOMIC_RELAXED);
    if (is_busy || 0 == call % CALLS_PER_LOOK || OPAL_UNLIKELY(NULL == shared_memory)) {
        const int of_others = progress_others(component);
        if (0 != of_others || !is_busy) {
            /* Never far behind, since the number of the call wraps around. */
            __atomic_store_n(&busy_until, call + (0 != of_others ? BUSY_CALLS : 0), __ATOMIC_RELAXED);
        }
        events += of_others;
    }
    return events;
}

static void write_counters(void)
{
    const towline_btl_counters_t *sum = &mca_btl_towline_component.counters;
    char json[512];
    snprintf(json, sizeof json,
             "{\"component\":\"btl\",\"messages_sent\":%llu,\"messages_received\":%llu,\"bytes_sent\":%llu,\"puts\":%llu,"
             "\"gets\":%llu,\"atomics\":%llu}",
             (unsigned long long) sum->sent, (unsigned long long) sum->received, (unsigned long long) sum->bytes_sent,
             (unsigned long long) sum->puts, (unsigned long long) sum->gets, (unsigned long long) sum->atomics);
    towline_write_counters(json);
}

int btl_towline_finalize(mca_btl_base_module_t *btl)
{
    btl_towline_module_t *module = (btl_towline_module_t *) btl;
    btl_towline_component_t *component = &mca_btl_towline_component;
    towline_btl_counters_t own = { 0 };
    unsigned index;
    if (TOWLINE_SUCCESS == towline_btl_counters(module->btl, &own)) {
        component->counters.sent += own.sent;
        component->counters.bytes_sent += own.bytes_sent;
        component->counters.received += own.received;
        component->counters.puts += own.puts;
        component->counters.gets += own.gets;
        component->counters.atomics += own.atomics;
    }
    module->is_closing = true;
    if (module == component->shared_memory) {
        component->shared_memory = NULL;
    }
    if (TOWLINE_SUCCESS != towline_btl_close(module->btl, CLOSE_MS)) {
        towline_print_error("btl", "at the end");
    }
    for (index = 0; index < component->count; index++) {
        if (component->modules[index] == module) {
            component->modules[index] = NULL;
        }
    }
    while (NULL != module->endpoints) {
        struct mca_btl_base_endpoint_t *endpoint = module->endpoints;
        module->endpoints = endpoint->next;
        free(endpoint);
    }
    while (NULL != module->retired) {
        mca_btl_base_registration_handle_t *handle = module->retired;
        module->retired = handle->next;
        free(handle);
    }
    OBJ_DESTRUCT(&module->lock);
    free(module);
    if (0 == --component->open) {
        write_counters();
    }
    return OPAL_SUCCESS;
}
