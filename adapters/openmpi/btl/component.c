/* The component: its variables, and its start. */
#include "btl_towline.h"

#include <mpi.h>
#include "ompi/runtime/mpiruntime.h"

static int component_register(void);
static int component_open(void);
static int component_close(void);
static mca_btl_base_module_t **component_init(int *count, bool enable_progress_threads, bool enable_mpi_threads);

btl_towline_component_t mca_btl_towline_component = {
    .super = {
        .btl_version = {
            MCA_BTL_DEFAULT_VERSION("towline"),
            .mca_open_component = component_open,
            .mca_close_component = component_close,
            .mca_register_component_params = component_register,
        },
        .btl_data = { MCA_BASE_METADATA_PARAM_NONE },
        .btl_init = component_init,
        .btl_progress = btl_towline_progress,
    },
    .numbers = 4096,
};

OBJ_CLASS_INSTANCE(btl_towline_frag_t, mca_btl_base_descriptor_t, NULL, NULL);
OBJ_CLASS_INSTANCE(btl_towline_operation_t, opal_free_list_item_t, NULL, NULL);

static int component_register(void)
{
    btl_towline_component_t *component = &mca_btl_towline_component;
    mca_base_component_t *version = &component->super.btl_version;
    if (mca_base_component_var_register(version, "numbers",
                                        "How many processes one mpirun may have, with all that it spawns; the same in all of them",
                                        MCA_BASE_VAR_TYPE_UNSIGNED_INT, NULL, 0, 0, OPAL_INFO_LVL_5, MCA_BASE_VAR_SCOPE_READONLY,
                                        &component->numbers)
            < 0
        || mca_base_component_var_register(version, "peers",
                                           "How many processes this one may talk to; 0: those of its job, and 64 that are spawned",
                                           MCA_BASE_VAR_TYPE_UNSIGNED_INT, NULL, 0, 0, OPAL_INFO_LVL_5, MCA_BASE_VAR_SCOPE_READONLY,
                                           &component->peers)
               < 0
        || OPAL_SUCCESS != towline_register_settings(version, &component->settings)) {
        return OPAL_ERROR;
    }
    return mca_btl_base_param_register(version, &btl_towline_template);
}

static int component_open(void)
{
    return OPAL_SUCCESS;
}

static int component_close(void)
{
    btl_towline_component_t *component = &mca_btl_towline_component;
    if (component->has_lists) {
        OBJ_DESTRUCT(&component->frags);
        OBJ_DESTRUCT(&component->operations);
        component->has_lists = false;
    }
    return OPAL_SUCCESS;
}

static int make_lists(void)
{
    btl_towline_component_t *component = &mca_btl_towline_component;
    int rc;
    OBJ_CONSTRUCT(&component->frags, opal_free_list_t);
    OBJ_CONSTRUCT(&component->operations, opal_free_list_t);
    component->has_lists = true;
    rc = opal_free_list_init(&component->frags, sizeof(btl_towline_frag_t), opal_cache_line_size, OBJ_CLASS(btl_towline_frag_t), 0,
                             opal_cache_line_size, 64, -1, 256, NULL, 0, NULL, NULL, NULL);
    if (OPAL_SUCCESS == rc) {
        rc = opal_free_list_init(&component->operations, sizeof(btl_towline_operation_t), opal_cache_line_size,
                                 OBJ_CLASS(btl_towline_operation_t), 0, opal_cache_line_size, 64, -1, 256, NULL, 0, NULL, NULL, NULL);
    }
    return rc;
}

/* How many processes the job of this process has. */
static uint32_t job_size(void)
{
#if BTL_VERSION >= 330
    return opal_process_info.num_procs;
#else
    opal_process_name_t job = { .jobid = OPAL_PROC_MY_NAME.jobid, .vpid = OPAL_VPID_WILDCARD };
    uint32_t size = 1, *place = &size;
    int rc;
    OPAL_MODEX_RECV_VALUE(rc, OPAL_PMIX_JOB_SIZE, &job, &place, OPAL_UINT32);
    return OPAL_SUCCESS == rc && 0 < size ? size : 1;
#endif
}

/* The level of threads that use the modules: with MPI_THREAD_SERIALIZED there are several, too. Open MPI always says that it enables
 * progress threads, which this component has not. */
static int thread_level(bool enable_mpi_threads)
{
    if (enable_mpi_threads) {
        return TOWLINE_THREAD_MULTIPLE;
    }
    return ompi_mpi_thread_provided >= MPI_THREAD_SERIALIZED ? TOWLINE_THREAD_SERIALIZED : TOWLINE_THREAD_SINGLE;
}

static int open_modules(int level, towline_btl_t *opened, size_t *count)
{
    btl_towline_component_t *component = &mca_btl_towline_component;
    const uint32_t size = job_size();
    towline_place_t place;
    char **settings;
    int code;
    component->job_size = size;
    if (component->numbers < 2 * size) {
        component->numbers = 2 * size;
    }
    if (OPAL_SUCCESS != towline_own_place("btl", component->numbers, component->peers ? component->peers : size + 64, &place)) {
        return OPAL_ERROR;
    }
    place.job ^= 0x62746c; /* the component mtl has the job itself, and may be open at the same time */
    settings = towline_given_settings(&component->settings, NULL, 0);
    code = towline_btl_open(level, (const char *const *) settings, &place, opened, BTL_TOWLINE_MODULES, count);
    towline_free_settings(settings);
    if (TOWLINE_SUCCESS != code) {
        towline_print_error("btl", "the transports cannot be opened, so this component is not used");
        return OPAL_ERROR;
    }
    return OPAL_SUCCESS;
}

static mca_btl_base_module_t **component_init(int *count, bool enable_progress_threads, bool enable_mpi_threads)
{
    btl_towline_component_t *component = &mca_btl_towline_component;
    towline_btl_t opened[BTL_TOWLINE_MODULES];
    mca_btl_base_module_t **modules;
    size_t number = 0, index;
    *count = 0;
    /* A program may begin MPI again by a further session. */
    component->count = 0;
    component->shared_memory = NULL;
    component->has_job = false;
    component->open = 0;
    memset(&component->counters, 0, sizeof component->counters);
    if (OPAL_SUCCESS != make_lists()) {
        return NULL;
    }
    if (OPAL_SUCCESS != open_modules(thread_level(enable_mpi_threads), opened, &number)) {
        return NULL;
    }
    for (index = 0; index < number; index++) {
        btl_towline_module_t *module = btl_towline_module_new(opened[index]);
        if (NULL == module) {
            towline_btl_close(opened[index], 0);
            continue;
        }
        component->modules[component->count++] = module;
        if (0 == strcmp(module->name, "sm")) {
            component->shared_memory = module;
        }
        component->open++;
    }
    modules = calloc(component->count + 1, sizeof *modules); /* the framework frees it */
    if (NULL == modules || 0 == component->count || OPAL_SUCCESS != btl_towline_publish_cards()) {
        free(modules);
        return NULL;
    }
    for (index = 0; index < component->count; index++) {
        modules[index] = &component->modules[index]->super;
    }
    *count = (int) component->count;
    return modules;
}
