/* What both components need: see common.h. */
#include "ompi_config.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "opal/constants.h"

#include "common.h"

/* How often this process has begun to use the component: a program may begin MPI again by a further session, after it has ended all
 * others. The component stays loaded. Beginning is collective over a job, so that all its processes have the same number. */
static unsigned starts = 0;

/* Bytes of the secret that is drawn for the processes of an mpirun. */
#define SECRET_BYTES 32
/* Most bytes of any such secret. */
#define SECRET_MOST 64

#if OMPI_MAJOR_VERSION >= 5
/* Reads the secret of a process that has published it, or will do so soon. */
static int read_secret(const pmix_proc_t *of, const char *key, uint8_t *secret)
{
    pmix_value_t *value = NULL;
    int rc = PMIx_Get(of, key, NULL, 0, &value);
    if (PMIX_SUCCESS == rc && (PMIX_BYTE_OBJECT != value->type || SECRET_BYTES != value->data.bo.size)) {
        rc = PMIX_ERR_TYPE_MISMATCH;
    }
    if (PMIX_SUCCESS == rc) {
        memcpy(secret, value->data.bo.bytes, SECRET_BYTES);
    }
    if (NULL != value) {
        PMIX_VALUE_RELEASE(value);
    }
    return rc;
}

/* The process that has spawned this job, if one has. */
static bool find_parent(pmix_proc_t *parent)
{
    pmix_value_t *value = NULL;
    bool found = PMIX_SUCCESS == PMIx_Get(&opal_process_info.myprocid, PMIX_PARENT_ID, NULL, 0, &value) && NULL != value
                 && PMIX_PROC == value->type && NULL != value->data.proc;
    if (found) {
        *parent = *value->data.proc;
    }
    if (NULL != value) {
        PMIX_VALUE_RELEASE(value);
    }
    return found;
}

/* Rank 0 of the first job draws the secret. The other processes of a job have it from its rank 0, and rank 0 of a spawned job has it
 * from the process that has spawned the job. So all publish it before the transports are opened. It stays the same until the process
 * ends, since PMIx does not tell an old value from a new one. */
static int get_secret(const char *name, uint8_t *secret, size_t *length)
{
    static uint8_t kept[SECRET_BYTES];
    static bool has_kept = false;
    pmix_proc_t source = opal_process_info.myprocid;
    pmix_value_t value;
    char key[64];
    int rc = PMIX_SUCCESS;
    *length = SECRET_BYTES;
    if (has_kept) {
        memcpy(secret, kept, SECRET_BYTES);
        return OPAL_SUCCESS;
    }
    snprintf(key, sizeof key, "towline.secret.%s", name);
    if (0 != source.rank) {
        source.rank = 0;
        rc = read_secret(&source, key, secret);
    } else if (find_parent(&source)) {
        rc = read_secret(&source, key, secret);
    } else if (SECRET_BYTES != getrandom(secret, SECRET_BYTES, 0)) {
        rc = PMIX_ERR_NOT_SUPPORTED;
    }
    if (PMIX_SUCCESS == rc) {
        value.type = PMIX_BYTE_OBJECT;
        value.data.bo.bytes = (char *) secret;
        value.data.bo.size = SECRET_BYTES;
        rc = PMIx_Put(PMIX_GLOBAL, key, &value);
    }
    if (PMIX_SUCCESS == rc) {
        rc = PMIx_Commit();
    }
    if (PMIX_SUCCESS != rc) {
        opal_output(0, "%s towline: the secret of the job cannot be exchanged by PMIx: %s", name, PMIx_Error_string(rc));
        return OPAL_ERROR;
    }
    memcpy(kept, secret, SECRET_BYTES);
    has_kept = true;
    return OPAL_SUCCESS;
}
#else
/* All jobs of one mpirun have a secret in their environment, which Open MPI draws for transports: 32 hexadecimal digits. */
static int get_secret(const char *name, uint8_t *secret, size_t *length)
{
    const char *text = getenv("OMPI_MCA_orte_precondition_transports");
    *length = NULL != text ? strlen(text) : 0;
    if (*length < SECRET_BYTES || *length > SECRET_MOST) {
        opal_output(0, "%s towline: OMPI_MCA_orte_precondition_transports has no secret: start the program with mpirun, and leave this "
                       "variable to Open MPI",
                    name);
        return OPAL_ERROR;
    }
    memcpy(secret, text, *length);
    return OPAL_SUCCESS;
}
#endif

#if OMPI_MAJOR_VERSION >= 5
/* PMIx has answered, and needs the directive no more. A refusal leaves the files. */
static void answered(pmix_status_t status, pmix_info_t *results, size_t count, void *data, pmix_release_cbfunc_t release,
                     void *release_data)
{
    pmix_info_t *directive = data;
    PMIX_INFO_FREE(directive, 1);
    if (NULL != release) {
        release(release_data);
    }
}
#endif

/* Has Open MPI's daemon on this host remove these files when the processes of this job are gone. Where there is no daemon, or if
 * it refuses, the next program over Towline removes them. Open MPI 4.1 waits here for the daemon's answer, once for each 32 processes
 * that this one sends to.
 *
 * The request is for the job. One for this process alone would be executed when it ends, and others may still need what it has sent
 * before. It names single files, since a daemon that empties a directory follows a symbolic link. */
static void clean_up(void *state, const char *const *paths, size_t count)
{
    size_t index, length = 1, used = 0;
    char *list;
    for (index = 0; index < count; index++) {
        length += strlen(paths[index]) + 1;
    }
    list = malloc(length);
    if (NULL == list) {
        return;
    }
    for (index = 0; index < count; index++) {
        /* PMIx has commas between the paths. */
        if (NULL == strchr(paths[index], ',')) {
            used += (size_t) sprintf(list + used, "%s%s", used ? "," : "", paths[index]);
        }
    }
    if (0 < used) {
#if OMPI_MAJOR_VERSION >= 5
        pmix_info_t *directive;
        PMIX_INFO_CREATE(directive, 1);
        PMIX_INFO_LOAD(directive, PMIX_REGISTER_CLEANUP, list, PMIX_STRING);
        if (PMIX_SUCCESS != PMIx_Job_control_nb(NULL, 0, directive, 1, answered, directive)) {
            PMIX_INFO_FREE(directive, 1);
        }
#else
        if (NULL != opal_pmix.register_cleanup) {
            (void) opal_pmix.register_cleanup(list, false, false, true);
        }
#endif
    }
    free(list);
}

#if OMPI_MAJOR_VERSION >= 5
/* The key of the cards that a process has published at its start with this number. Each start has a key of its own, since PMIx also
 * has the cards of earlier ones, and may return them. */
static bool cards_key(const mca_base_component_t *component, unsigned start, char *key, size_t size)
{
    char *name = mca_base_component_to_string(component);
    if (NULL == name) {
        return false;
    }
    (void) snprintf(key, size, 1 == start ? "%s" : "%s.%u", name, start);
    free(name);
    return true;
}

/* Reads the cards of a process. `wait`: if it has not published them yet, it will do so soon. Otherwise its server is asked what there
 * is now. */
static pmix_status_t read_cards(const pmix_proc_t *of, const char *key, bool wait, void **cards, size_t *length)
{
    pmix_value_t *value = NULL;
    pmix_info_t no_wait;
    pmix_status_t rc;
    PMIX_INFO_LOAD(&no_wait, PMIX_IMMEDIATE, NULL, PMIX_BOOL);
    rc = PMIx_Get(of, key, wait ? NULL : &no_wait, wait ? 0 : 1, &value);
    PMIX_INFO_DESTRUCT(&no_wait);
    if (PMIX_SUCCESS == rc && (NULL == value || PMIX_BYTE_OBJECT != value->type)) {
        rc = PMIX_ERR_TYPE_MISMATCH;
    }
    if (PMIX_SUCCESS == rc) {
        free(*cards);
        *cards = value->data.bo.bytes;
        *length = value->data.bo.size;
        value->data.bo.bytes = NULL;
        value->data.bo.size = 0;
    }
    if (NULL != value) {
        PMIX_VALUE_RELEASE(value);
    }
    return rc;
}

int towline_publish_cards(const mca_base_component_t *component, const void *cards, size_t length)
{
    pmix_value_t value = { .type = PMIX_BYTE_OBJECT, .data.bo = { .bytes = (char *) cards, .size = length } };
    char key[PMIX_MAX_KEYLEN + 1];
    if (!cards_key(component, starts, key, sizeof key)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    return opal_pmix_convert_status(PMIx_Put(PMIX_GLOBAL, key, &value));
}

int towline_get_cards(const mca_base_component_t *component, const opal_process_name_t *of, void **cards, size_t *length)
{
    bool of_own_job = of->jobid == OPAL_PROC_MY_NAME.jobid;
    unsigned start = of_own_job ? starts : 1;
    char key[PMIX_MAX_KEYLEN + 1];
    pmix_proc_t process;
    pmix_status_t rc;
    *cards = NULL;
    *length = 0;
    OPAL_PMIX_CONVERT_NAME(&process, of);
    if (!cards_key(component, start, key, sizeof key)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    rc = read_cards(&process, key, true, cards, length);
    /* A process of another job may have begun more often: the last cards count. */
    while (PMIX_SUCCESS == rc && !of_own_job && cards_key(component, ++start, key, sizeof key)
           && PMIX_SUCCESS == read_cards(&process, key, false, cards, length)) {
    }
    return PMIX_SUCCESS == rc ? OPAL_SUCCESS : OPAL_ERR_OUT_OF_RESOURCE;
}
#else
int towline_publish_cards(const mca_base_component_t *component, const void *cards, size_t length)
{
    int rc;
    OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, component, cards, length);
    return rc;
}

int towline_get_cards(const mca_base_component_t *component, const opal_process_name_t *of, void **cards, size_t *length)
{
    int rc;
    *cards = NULL;
    *length = 0;
    OPAL_MODEX_RECV(rc, component, of, cards, length);
    return OPAL_SUCCESS == rc && NULL != *cards ? OPAL_SUCCESS : OPAL_ERR_OUT_OF_RESOURCE;
}
#endif

int towline_own_place(const char *name, uint32_t numbers, uint32_t peers, towline_place_t *place)
{
    uint8_t secret[SECRET_MOST];
    size_t length = 0;
    int rc;
    starts++;
    rc = get_secret(name, secret, &length);
    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    if (TOWLINE_SUCCESS
        != towline_place_from_secret(secret, length, towline_number_of(OPAL_PROC_MY_NAME, numbers), place)) {
        towline_print_error(name, "the place of this process");
        return OPAL_ERROR;
    }
    place->clean_up = clean_up;
    place->numbers = numbers;
    place->peers = peers;
    place->local = (uint32_t) opal_process_info.num_local_peers + 1;
    place->local_rank = (uint32_t) opal_process_info.my_local_rank;
    if (place->local_rank >= place->local || place->local > numbers) {
        place->local = 1;
        place->local_rank = 0;
    }
    return OPAL_SUCCESS;
}

int towline_register_settings(const mca_base_component_t *component, towline_settings_t *settings)
{
    towline_setting_t setting;
    size_t index;
    if (NULL == settings->values) {
        while (TOWLINE_SUCCESS == towline_setting(settings->count, &setting)) {
            settings->count++;
        }
        settings->values = calloc(settings->count, sizeof *settings->values);
        if (NULL == settings->values) {
            return OPAL_ERR_OUT_OF_RESOURCE;
        }
    }
    for (index = 0; index < settings->count; index++) {
        char name[128], help[2048], *dot;
        (void) towline_setting(index, &setting);
        snprintf(name, sizeof name, "%s", setting.name);
        while (NULL != (dot = strchr(name, '.'))) {
            *dot = '_';
        }
        snprintf(help, sizeof help, "%s (default: %s%s%s; %s in the environment overrides it)", setting.help,
                 '\0' != setting.default_value[0] ? setting.default_value : "none", '\0' != setting.unit[0] ? " " : "", setting.unit,
                 setting.variable);
        settings->values[index] = NULL;
        if (mca_base_component_var_register(component, name, help, MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0, OPAL_INFO_LVL_5,
                                            MCA_BASE_VAR_SCOPE_READONLY, &settings->values[index])
            < 0) {
            return OPAL_ERROR;
        }
    }
    return OPAL_SUCCESS;
}

char **towline_given_settings(const towline_settings_t *settings, const char *const *of_component, size_t count)
{
    char **given = calloc(count + settings->count + 1, sizeof *given);
    size_t index, used = 0;
    for (index = 0; NULL != given && index < count; index++) {
        given[used] = strdup(of_component[index]);
        used += NULL != given[used];
    }
    for (index = 0; NULL != given && index < settings->count; index++) {
        towline_setting_t setting;
        if (NULL != settings->values[index] && TOWLINE_SUCCESS == towline_setting(index, &setting)
            && 0 <= asprintf(&given[used], "%s=%s", setting.name, settings->values[index])) {
            used++;
        }
    }
    return given;
}

void towline_free_settings(char **given)
{
    char **setting;
    for (setting = given; NULL != given && NULL != *setting; setting++) {
        free(*setting);
    }
    free(given);
}

void towline_print_error(const char *component, const char *what)
{
    char text[1024] = "";
    towline_error_text(text, sizeof text);
    opal_output(0, "%s towline: %s: %s", component, what, text);
}

void towline_write_counters(const char *json)
{
    const char *prefix = getenv("TOWLINE_MPI_COUNTERS");
    char path[4096];
    FILE *file;
    if (NULL == prefix || snprintf(path, sizeof path, "%s.%ld", prefix, (long) getpid()) >= (int) sizeof path) {
        return;
    }
    file = fopen(path, "a");
    if (NULL == file) {
        opal_output(0, "towline: cannot write %s, which TOWLINE_MPI_COUNTERS names", path);
        return;
    }
    fprintf(file, "%s\n", json);
    fclose(file);
}
