/* Registered memory and one-sided operations. */
#include "btl_towline.h"

mca_btl_base_registration_handle_t *btl_towline_register_mem(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                                             void *base, size_t size, uint32_t flags)
{
    btl_towline_module_t *module = (btl_towline_module_t *) btl;
    mca_btl_base_registration_handle_t *handle = malloc(sizeof *handle);
    towline_btl_endpoint_t only = { 0, module->btl };
    size_t length;
    if (NULL == handle) {
        return NULL;
    }
    if (NULL != endpoint && MCA_BTL_ENDPOINT_ANY != endpoint) {
        only = endpoint->handle;
    }
    if (TOWLINE_SUCCESS
        != towline_btl_register_memory(module->btl, only, base, size, flags & MCA_BTL_REG_FLAG_ACCESS_ANY, &handle->registration)) {
        free(handle);
        return NULL;
    }
    if (TOWLINE_SUCCESS != towline_btl_key(handle->registration, handle->key, sizeof handle->key, &length)) {
        (void) towline_btl_deregister(handle->registration);
        free(handle);
        return NULL;
    }
    return handle;
}

int btl_towline_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle)
{
    btl_towline_module_t *module = (btl_towline_module_t *) btl;
    int code = towline_btl_deregister(handle->registration);
    if (TOWLINE_ERR_BUSY == code) {
        /* Bytes of a peer are arriving there. */
        opal_mutex_lock(&module->lock);
        handle->next = module->retired;
        module->retired = handle;
        opal_mutex_unlock(&module->lock);
        return OPAL_SUCCESS;
    }
    free(handle);
    return TOWLINE_SUCCESS == code ? OPAL_SUCCESS : OPAL_ERR_BAD_PARAM;
}

void btl_towline_deregister_retired(btl_towline_module_t *module)
{
    mca_btl_base_registration_handle_t *handle;
    opal_mutex_lock(&module->lock);
    handle = module->retired;
    module->retired = NULL;
    opal_mutex_unlock(&module->lock);
    while (NULL != handle) {
        mca_btl_base_registration_handle_t *next = handle->next;
        btl_towline_deregister_mem(&module->super, handle);
        handle = next;
    }
}

static void on_done(const towline_btl_done_t *done, void *state)
{
    btl_towline_operation_t *operation = state;
    btl_towline_operation_t own = *operation; /* the function may begin another operation */
    if (TOWLINE_SUCCESS == done->status && 0 != own.value_bytes) {
        uint32_t low = (uint32_t) done->value;
        memcpy(own.local, 4 == own.value_bytes ? (void *) &low : (void *) &done->value, own.value_bytes);
    }
    opal_free_list_return(&mca_btl_towline_component.operations, &operation->super);
    if (NULL != own.function && !own.module->is_closing) {
        own.function(&own.module->super, own.endpoint, own.local, own.local_handle, own.context, own.data,
                     btl_towline_error(done->status));
    }
}

static btl_towline_operation_t *new_operation(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local,
                                              mca_btl_base_registration_handle_t *local_handle,
                                              mca_btl_base_rdma_completion_fn_t function, void *context, void *data)
{
    btl_towline_operation_t *operation
        = (btl_towline_operation_t *) opal_free_list_get(&mca_btl_towline_component.operations);
    if (OPAL_LIKELY(NULL != operation)) {
        operation->module = (btl_towline_module_t *) btl;
        operation->endpoint = endpoint;
        operation->local = local;
        operation->local_handle = local_handle;
        operation->function = function;
        operation->context = context;
        operation->data = data;
        operation->value_bytes = 0;
    }
    return operation;
}

/* The peer of an operation. */
static towline_btl_endpoint_t peer_of(const mca_btl_base_module_t *btl, const struct mca_btl_base_endpoint_t *endpoint)
{
    return OPAL_LIKELY(NULL != endpoint) ? endpoint->handle : ((const btl_towline_module_t *) btl)->own.handle;
}

/* The result of a call that has begun an operation, or has not. */
static int begun(btl_towline_operation_t *operation, int code)
{
    if (OPAL_UNLIKELY(TOWLINE_SUCCESS != code)) {
        opal_free_list_return(&mca_btl_towline_component.operations, &operation->super);
    }
    return btl_towline_error(code);
}

static towline_btl_registration_t registration_of(const mca_btl_base_module_t *btl,
                                                  const mca_btl_base_registration_handle_t *local_handle)
{
    towline_btl_registration_t none = { 0, ((const btl_towline_module_t *) btl)->btl };
    return NULL == local_handle ? none : local_handle->registration;
}

/* A copy of the key of a peer's memory. */
typedef struct remote_key_t {
    unsigned char bytes[sizeof ((mca_btl_base_registration_handle_t *) 0)->key];
    size_t length;
} remote_key_t;

/* Has a key mean all registered memory of the peer, if the address does not lie in the memory of the key. Returns whether it was changed. */
static bool widen(remote_key_t *key, uint64_t address)
{
    return TOWLINE_SUCCESS == towline_btl_key_by_address(key->bytes, key->length, address, key->bytes);
}

/* osc/rdma passes a pointer into the list of a dynamic window's memory, in which the peer moves the entries when it attaches memory or
 * detaches it. So the key may be that of other memory of the peer, or change while it is copied. In the first case, the address lies
 * beyond that memory, and the caller widens the key and tries again. */
static void copy_key(const mca_btl_base_module_t *btl, const mca_btl_base_registration_handle_t *handle, uint64_t address,
                     remote_key_t *key)
{
    key->length = btl->btl_registration_handle_size;
    if (NULL == handle) {
        /* osc/rdma has none for some memory of this process. With zeros, the operation is refused, and osc/rdma does it itself. */
        memset(key->bytes, 0, key->length);
        return;
    }
    memcpy(key->bytes, handle->key, key->length);
    opal_atomic_rmb();
    if (0 != memcmp(key->bytes, handle->key, key->length)) {
        (void) widen(key, address);
    }
}

int btl_towline_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local, uint64_t remote,
                    mca_btl_base_registration_handle_t *local_handle, mca_btl_base_registration_handle_t *remote_handle, size_t size,
                    int flags, int order, mca_btl_base_rdma_completion_fn_t function, void *context, void *data)
{
    btl_towline_operation_t *operation = new_operation(btl, endpoint, local, local_handle, function, context, data);
    remote_key_t key;
    int code;
    if (OPAL_UNLIKELY(NULL == operation)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    copy_key(btl, remote_handle, remote, &key);
    do {
        code = towline_btl_put(peer_of(btl, endpoint), local, size, registration_of(btl, local_handle),
                               key.bytes, key.length, remote, on_done, operation);
    } while (TOWLINE_ERR_RANGE == code && widen(&key, remote));
    return begun(operation, code);
}

int btl_towline_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local, uint64_t remote,
                    mca_btl_base_registration_handle_t *local_handle, mca_btl_base_registration_handle_t *remote_handle, size_t size,
                    int flags, int order, mca_btl_base_rdma_completion_fn_t function, void *context, void *data)
{
    btl_towline_operation_t *operation = new_operation(btl, endpoint, local, local_handle, function, context, data);
    remote_key_t key;
    int code;
    if (OPAL_UNLIKELY(NULL == operation)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    copy_key(btl, remote_handle, remote, &key);
    do {
        code = towline_btl_get(peer_of(btl, endpoint), local, size, registration_of(btl, local_handle),
                               key.bytes, key.length, remote, on_done, operation);
    } while (TOWLINE_ERR_RANGE == code && widen(&key, remote));
    return begun(operation, code);
}

int btl_towline_atomic_op(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, uint64_t remote,
                          mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t op, uint64_t operand, int flags,
                          int order, mca_btl_base_rdma_completion_fn_t function, void *context, void *data)
{
    btl_towline_operation_t *operation = new_operation(btl, endpoint, NULL, NULL, function, context, data);
    remote_key_t key;
    int code;
    if (OPAL_UNLIKELY(NULL == operation)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    copy_key(btl, remote_handle, remote, &key);
    do {
        code = towline_btl_atomic(peer_of(btl, endpoint), op, (uint32_t) flags, operand,
                                  key.bytes, key.length, remote, on_done, operation);
    } while (TOWLINE_ERR_RANGE == code && widen(&key, remote));
    return begun(operation, code);
}

static unsigned word_bytes(int flags)
{
    return flags & MCA_BTL_ATOMIC_FLAG_32BIT ? 4 : 8;
}

int btl_towline_atomic_fop(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local, uint64_t remote,
                           mca_btl_base_registration_handle_t *local_handle, mca_btl_base_registration_handle_t *remote_handle,
                           mca_btl_base_atomic_op_t op, uint64_t operand, int flags, int order,
                           mca_btl_base_rdma_completion_fn_t function, void *context, void *data)
{
    btl_towline_operation_t *operation = new_operation(btl, endpoint, local, local_handle, function, context, data);
    remote_key_t key;
    int code;
    if (OPAL_UNLIKELY(NULL == operation)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    copy_key(btl, remote_handle, remote, &key);
    operation->value_bytes = word_bytes(flags);
    do {
        code = towline_btl_atomic(peer_of(btl, endpoint), op, (uint32_t) flags, operand,
                                  key.bytes, key.length, remote, on_done, operation);
    } while (TOWLINE_ERR_RANGE == code && widen(&key, remote));
    return begun(operation, code);
}

int btl_towline_atomic_cswap(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local, uint64_t remote,
                             mca_btl_base_registration_handle_t *local_handle, mca_btl_base_registration_handle_t *remote_handle,
                             uint64_t compare, uint64_t value, int flags, int order, mca_btl_base_rdma_completion_fn_t function,
                             void *context, void *data)
{
    btl_towline_operation_t *operation = new_operation(btl, endpoint, local, local_handle, function, context, data);
    remote_key_t key;
    int code;
    if (OPAL_UNLIKELY(NULL == operation)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    copy_key(btl, remote_handle, remote, &key);
    operation->value_bytes = word_bytes(flags);
    do {
        code = towline_btl_compare_swap(peer_of(btl, endpoint), (uint32_t) flags, compare, value,
                                        key.bytes, key.length, remote, on_done, operation);
    } while (TOWLINE_ERR_RANGE == code && widen(&key, remote));
    return begun(operation, code);
}

int btl_towline_flush(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint)
{
    btl_towline_module_t *module = (btl_towline_module_t *) btl;
    towline_btl_endpoint_t all = { 0, module->btl };
    return btl_towline_error(towline_btl_flush(module->btl, NULL == endpoint ? all : endpoint->handle));
}
