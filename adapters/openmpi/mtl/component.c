/* The component: its variables, its start and its end. */
#include "mtl_towline.h"

#include "ompi/runtime/mpiruntime.h"

/* Up to how many peers each has room for many unexpected messages. */
#define TOWLINE_FEW_PEERS 256

static int component_register(void);
static int component_open(void);
static int component_close(void);
static int component_query(mca_base_module_t **module, int *priority);
#if OMPI_MAJOR_VERSION >= 5
static mca_mtl_base_module_t *component_init(bool enable_progress_threads, bool enable_mpi_threads, bool *accelerator_support);
#else
static mca_mtl_base_module_t *component_init(bool enable_progress_threads, bool enable_mpi_threads);
#endif
static mca_mtl_base_module_t *start(bool enable_mpi_threads);
static int module_finalize(mca_mtl_base_module_t *mtl);

mca_mtl_base_component_2_0_0_t mca_mtl_towline_component = {
    .mtl_version = {
        MCA_MTL_BASE_VERSION_2_0_0,
        .mca_component_name = "towline",
        MCA_BASE_MAKE_VERSION(component, OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION),
        .mca_open_component = component_open,
        .mca_close_component = component_close,
        .mca_query_component = component_query,
        .mca_register_component_params = component_register,
    },
    .mtl_data = { MCA_BASE_METADATA_PARAM_NONE },
    .mtl_init = component_init,
};

mtl_towline_module_t ompi_mtl_towline = {
    .super = {
        .mtl_max_contextid = TOWLINE_FIRST_EXTENDED_ID,
        .mtl_max_tag = TOWLINE_TAG_MAX,
        .mtl_request_size = sizeof(mtl_towline_request_t) - sizeof(struct mca_mtl_request_t),
#if OMPI_MAJOR_VERSION >= 5
        .mtl_flags = MCA_MTL_BASE_FLAG_SUPPORTS_EXT_CID,
#endif
        .mtl_add_procs = mtl_towline_add_procs,
        .mtl_del_procs = mtl_towline_del_procs,
        .mtl_finalize = module_finalize,
        .mtl_send = mtl_towline_send,
        .mtl_isend = mtl_towline_isend,
        .mtl_irecv = mtl_towline_irecv,
        .mtl_iprobe = mtl_towline_iprobe,
        .mtl_imrecv = mtl_towline_imrecv,
        .mtl_improbe = mtl_towline_improbe,
        .mtl_cancel = mtl_towline_cancel,
        .mtl_add_comm = mtl_towline_add_comm,
        .mtl_del_comm = mtl_towline_del_comm,
    },
    .numbers = 4096,
    .priority = 10,
};

static int add_variable(const char *name, const char *help, mca_base_var_type_t type, void *storage)
{
    return mca_base_component_var_register(&mca_mtl_towline_component.mtl_version, name, help, type, NULL, 0, 0,
                                           OPAL_INFO_LVL_4, MCA_BASE_VAR_SCOPE_READONLY, storage);
}

static int component_register(void)
{
    mtl_towline_module_t *module = &ompi_mtl_towline;
    if (add_variable("priority", "Priority of the component", MCA_BASE_VAR_TYPE_INT, &module->priority) < 0
        || add_variable("numbers", "How many processes one mpirun may have, with all that it spawns; the same in all of them",
                        MCA_BASE_VAR_TYPE_UNSIGNED_INT, &module->numbers) < 0
        || add_variable("peers", "How many processes this one may talk to; 0: those of its job, and 64 that are spawned",
                        MCA_BASE_VAR_TYPE_UNSIGNED_INT, &module->peers) < 0
        || OPAL_SUCCESS != towline_register_settings(&mca_mtl_towline_component.mtl_version, &module->settings)) {
        return OMPI_ERROR;
    }
    return OMPI_SUCCESS;
}

static int component_open(void)
{
    return OMPI_SUCCESS;
}

static int component_close(void)
{
    return OMPI_SUCCESS;
}

static int component_query(mca_base_module_t **module, int *priority)
{
    *module = (mca_base_module_t *) &ompi_mtl_towline;
    *priority = ompi_mtl_towline.priority;
    return OMPI_SUCCESS;
}

#if OMPI_MAJOR_VERSION >= 5
static mca_mtl_base_module_t *component_init(bool enable_progress_threads, bool enable_mpi_threads, bool *accelerator_support)
{
    *accelerator_support = false;
    return start(enable_mpi_threads);
}
#else
static mca_mtl_base_module_t *component_init(bool enable_progress_threads, bool enable_mpi_threads)
{
    return start(enable_mpi_threads);
}
#endif

static mca_mtl_base_module_t *start(bool enable_mpi_threads)
{
    mtl_towline_module_t *module = &ompi_mtl_towline;
    /* MPI programs may have many more of both than Towline's own by default. It is the program's affair what it leaves unreceived. */
    const char *defaults[] = { "requests=65536", "communicators=8192", "unmatched=ignore", NULL, NULL };
    char units[32], unexpected[32];
    size_t defaults_count = 3;
    towline_place_t place;
    char **settings;
    int code;
    uint32_t size = TOWLINE_JOB_SIZE();
    /* With MPI_THREAD_SERIALIZED several threads use the context, too, one at a time. */
    int level = ompi_mpi_thread_provided >= MPI_THREAD_SERIALIZED || enable_mpi_threads ? TOWLINE_THREAD_MULTIPLE
                                                                                        : TOWLINE_THREAD_SINGLE;

    if (module->numbers < 2 * size) {
        module->numbers = 2 * size;
    }
    if (OMPI_SUCCESS != towline_own_place("mtl", module->numbers, module->peers ? module->peers : size + 64, &place)) {
        return NULL;
    }
    if (place.peers <= TOWLINE_FEW_PEERS) {
        /* Each peer has a share of the memory for unexpected messages, also those that may be spawned. Memory that was never used
         * costs address space only. */
        snprintf(units, sizeof units, "units=%u", 256 * place.peers);
        snprintf(unexpected, sizeof unexpected, "unexpected=%u", 512 * place.peers);
        defaults[defaults_count++] = units;
        defaults[defaults_count++] = unexpected;
    }
    module->owners = calloc(module->numbers, sizeof *module->owners);
    if (NULL == module->owners) {
        return NULL;
    }
    settings = towline_given_settings(&module->settings, defaults, defaults_count);
    code = towline_worker_open(level, (const char *const *) settings, &place, &module->context);
    towline_free_settings(settings);
    if (TOWLINE_SUCCESS != code) {
        free(module->owners);
        towline_print_error("mtl", "the transports cannot be opened, so this component is not used");
        return NULL;
    }
    module->is_open = true;
    if (OMPI_SUCCESS != mtl_towline_publish_card()) {
        towline_leave(module->context);
        free(module->owners);
        module->is_open = false;
        return NULL;
    }
    opal_progress_register(mtl_towline_progress);
    return &module->super;
}

/* All counters: those of the program by their own names, and those of the engine and of each transport after the name of their part. */
static void write_counters(towline_context_t context)
{
    static const char program[] = "program.";
    size_t count = 0, length = 0, index;
    char *json = NULL;
    FILE *into;
    if (TOWLINE_SUCCESS != towline_counter_count(context, &count) || NULL == (into = open_memstream(&json, &length))) {
        return;
    }
    fputs("{\"component\":\"mtl\"", into);
    for (index = 0; index < count; index++) {
        const char *name = NULL;
        uint64_t value = 0;
        if (TOWLINE_SUCCESS == towline_counter_at(context, index, &name, NULL, &value)) {
            name += 0 == strncmp(name, program, sizeof program - 1) ? sizeof program - 1 : 0;
            fprintf(into, ",\"%s\":%llu", name, (unsigned long long) value);
        }
    }
    fputc('}', into);
    if (0 == fclose(into)) {
        towline_write_counters(json);
    }
    free(json);
}

static int module_finalize(mca_mtl_base_module_t *mtl)
{
    mtl_towline_module_t *module = (mtl_towline_module_t *) mtl;
    if (!module->is_open) {
        return OMPI_SUCCESS;
    }
    module->is_open = false;
    opal_progress_unregister(mtl_towline_progress);
    write_counters(module->context);
    if (TOWLINE_SUCCESS != towline_finish(module->context)) {
        towline_print_error("mtl", "at the end");
    }
    free(module->owners);
    module->owners = NULL;
    return OMPI_SUCCESS;
}
