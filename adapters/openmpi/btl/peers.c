/* Processes: their cards and endpoints, and their loss. */
#include "btl_towline.h"

/* The card of a module, as it is published: this head, and the bytes of the card. All cards of a process follow each other. */
typedef struct card_head_t {
    char name[16];
    uint32_t ordinal;
    uint32_t length;
} card_head_t;

int btl_towline_publish_cards(void)
{
    btl_towline_component_t *component = &mca_btl_towline_component;
    unsigned char *all = NULL;
    size_t used = 0;
    unsigned index;
    int rc;
    for (index = 0; index < component->count; index++) {
        btl_towline_module_t *module = component->modules[index];
        card_head_t head = { .ordinal = module->ordinal };
        size_t length = 0;
        unsigned char *more;
        (void) towline_btl_card(module->btl, NULL, 0, &length);
        more = realloc(all, used + sizeof head + length);
        if (NULL == more) {
            free(all);
            return OPAL_ERR_OUT_OF_RESOURCE;
        }
        all = more;
        memcpy(head.name, module->name, sizeof head.name);
        head.length = (uint32_t) length;
        memcpy(all + used, &head, sizeof head);
        used += sizeof head;
        if (TOWLINE_SUCCESS != towline_btl_card(module->btl, all + used, length, &length)) {
            towline_print_error("btl", "the card of this process");
            free(all);
            return OPAL_ERROR;
        }
        used += length;
    }
    rc = towline_publish_cards(&component->super.btl_version, all, used);
    free(all);
    return rc;
}

/* The card of the same rail of another process, among all its cards. */
static const unsigned char *find_card(const btl_towline_module_t *module, const unsigned char *all, size_t size, size_t *length)
{
    size_t at = 0;
    card_head_t head;
    while (size - at >= sizeof head) {
        memcpy(&head, all + at, sizeof head);
        at += sizeof head;
        if (head.length > size - at) {
            break;
        }
        if (head.ordinal == module->ordinal && 0 == memcmp(head.name, module->name, sizeof head.name)) {
            *length = head.length;
            return all + at;
        }
        at += head.length;
    }
    return NULL;
}

int btl_towline_add_own(btl_towline_module_t *module)
{
    size_t length = 0;
    unsigned char *card;
    int code;
    (void) towline_btl_card(module->btl, NULL, 0, &length);
    card = malloc(length);
    if (NULL == card) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    code = towline_btl_card(module->btl, card, length, &length);
    if (TOWLINE_SUCCESS == code) {
        code = towline_btl_add_peer(module->btl, card, length, &module->own, &module->own.handle);
    }
    free(card);
    return btl_towline_error(code);
}

/* The endpoint of a process that was added before, or NULL. Processes of several jobs may have the same number, so it does not tell
 * them apart. */
static struct mca_btl_base_endpoint_t *find_endpoint(btl_towline_module_t *module, const opal_process_name_t *name)
{
    struct mca_btl_base_endpoint_t *endpoint;
    opal_mutex_lock(&module->lock);
    endpoint = module->endpoints;
    while (NULL != endpoint && (endpoint->name.jobid != name->jobid || endpoint->name.vpid != name->vpid)) {
        endpoint = endpoint->next;
    }
    opal_mutex_unlock(&module->lock);
    return endpoint;
}

/* The endpoint of a process, which is added to the module if it was not added before. NULL: the module does not reach it. */
static struct mca_btl_base_endpoint_t *reach(btl_towline_module_t *module, const opal_process_name_t *name)
{
    struct mca_btl_base_endpoint_t *endpoint = find_endpoint(module, name);
    void *all;
    const unsigned char *card;
    size_t size = 0, length = 0;
    int rc;
    if (NULL != endpoint) {
        return endpoint;
    }
    if (OPAL_SUCCESS != towline_get_cards(&mca_btl_towline_component.super.btl_version, name, &all, &size)) {
        return NULL;
    }
    card = find_card(module, all, size, &length);
    endpoint = NULL == card ? NULL : calloc(1, sizeof *endpoint);
    if (NULL != endpoint) {
        rc = towline_btl_add_peer(module->btl, card, length, endpoint, &endpoint->handle);
        if (TOWLINE_SUCCESS != rc) {
            char text[512] = "";
            towline_error_text(text, sizeof text);
            opal_output_verbose(20, opal_btl_base_framework.framework_output, "btl towline: %s: %s", module->name, text);
            free(endpoint);
            endpoint = NULL;
        }
    }
    free(all);
    if (NULL != endpoint) {
        endpoint->name = *name;
        opal_mutex_lock(&module->lock);
        endpoint->next = module->endpoints;
        module->endpoints = endpoint;
        opal_mutex_unlock(&module->lock);
    }
    return endpoint;
}

/* Adds all processes of the job: to the module of shared memory, or where that does not reach them, to all others.
 *
 * A frame waits until its receiver has added the sender. Open MPI adds a process when the program sends to it for the first time, which
 * may be never. It would add all at the start because of MCA_BTL_FLAGS_SINGLE_ADD_PROCS, but with this flag, 5.0 crashes at the end of a
 * program that has sessions alone. */
static void add_job(const btl_towline_component_t *component)
{
    opal_process_name_t name = OPAL_PROC_MY_NAME;
    unsigned index;
    for (name.vpid = 0; name.vpid < component->job_size; name.vpid++) {
        if (name.vpid == OPAL_PROC_MY_NAME.vpid
            || (NULL != component->shared_memory && NULL != reach(component->shared_memory, &name))) {
            continue;
        }
        for (index = 0; index < component->count; index++) {
            btl_towline_module_t *module = component->modules[index];
            if (NULL != module && module != component->shared_memory) {
                (void) reach(module, &name);
            }
        }
    }
}

/* The component `self`, whose exclusivity is higher, carries the messages of a process to itself. But osc/rdma of 5.0 takes only modules
 * that reach the process itself, too, and that of 4.1 has no endpoint for its operations on its own memory. */
#if BTL_VERSION >= 330
#define OWN_ENDPOINT(module) (&(module)->own)
#else
#define OWN_ENDPOINT(module) NULL
#endif

int btl_towline_add_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                          struct mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable)
{
    btl_towline_module_t *module = (btl_towline_module_t *) btl;
    size_t index;
    if (!mca_btl_towline_component.has_job) {
        mca_btl_towline_component.has_job = true;
        add_job(&mca_btl_towline_component);
    }
    for (index = 0; index < count; index++) {
        endpoints[index] = procs[index] == opal_proc_local_get() ? OWN_ENDPOINT(module) : reach(module, &procs[index]->proc_name);
        if (NULL != endpoints[index] && NULL != reachable) {
            int rc = opal_bitmap_set_bit(reachable, (int) index);
            if (OPAL_SUCCESS != rc) {
                return rc;
            }
        }
    }
    return OPAL_SUCCESS;
}

int btl_towline_del_procs(mca_btl_base_module_t *btl, size_t count, struct opal_proc_t **procs,
                          struct mca_btl_base_endpoint_t **endpoints)
{
    btl_towline_module_t *module = (btl_towline_module_t *) btl;
    size_t index;
    for (index = 0; index < count; index++) {
        struct mca_btl_base_endpoint_t **place = &module->endpoints, *endpoint = endpoints[index];
        bool is_known;
        opal_mutex_lock(&module->lock);
        while (NULL != *place && *place != endpoint) {
            place = &(*place)->next;
        }
        is_known = NULL != endpoint && NULL != *place;
        if (is_known) {
            *place = endpoint->next;
        }
        opal_mutex_unlock(&module->lock);
        if (!is_known) {
            continue;
        }
        (void) towline_btl_remove_peer(endpoint->handle);
        free(endpoint);
        endpoints[index] = NULL;
    }
    return OPAL_SUCCESS;
}

int btl_towline_register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t function)
{
    ((btl_towline_module_t *) btl)->on_error = function;
    return OPAL_SUCCESS;
}

void btl_towline_on_error(const towline_btl_loss_t *loss, void *state)
{
    btl_towline_module_t *module = state;
    struct mca_btl_base_endpoint_t *endpoint;
    struct opal_proc_t *proc = NULL;
    char text[512];
    /* A process that ends normally closes its connections while others may still be on their way to the end. */
    if (loss->closed || module->is_closing || NULL == module->on_error) {
        return;
    }
    opal_mutex_lock(&module->lock);
    /* Processes that have ended are still in the list, and another one may have the number of one of them. It was put before them. */
    endpoint = module->endpoints;
    while (NULL != endpoint && towline_number_of(endpoint->name, mca_btl_towline_component.numbers) != loss->number) {
        endpoint = endpoint->next;
    }
    opal_mutex_unlock(&module->lock);
    if (NULL != endpoint) {
        proc = opal_proc_for_name(endpoint->name);
    }
    /* Open MPI prints it, and ends the job. */
    snprintf(text, sizeof text, "btl towline: process %u was lost: %s", (unsigned) loss->number, loss->text);
    module->on_error(&module->super, (int32_t) loss->flags, proc, text);
}
