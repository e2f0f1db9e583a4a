/* Descriptors and sends. */
#include "btl_towline.h"

/* No frame is sent with an order. ob1 passes 0, which would mean an order, for frames that it sends only when the operations before
 * them are complete. An ordered frame may wait for an answer of the peer, and the program may leave MPI meanwhile. */

/* Gives a frag to a descriptor of Towline. */
static btl_towline_frag_t *new_frag(btl_towline_module_t *module, struct mca_btl_base_endpoint_t *endpoint, uint8_t order,
                                    uint32_t flags)
{
    btl_towline_frag_t *frag = (btl_towline_frag_t *) opal_free_list_get(&mca_btl_towline_component.frags);
    if (OPAL_LIKELY(NULL != frag)) {
        frag->module = module;
        frag->endpoint = endpoint;
        frag->base.des_segments = frag->segments;
        frag->base.des_segment_count = 1;
        frag->base.des_flags = flags;
        frag->base.des_cbfunc = NULL;
        frag->base.order = order;
    }
    return frag;
}

static void return_frag(btl_towline_frag_t *frag)
{
    opal_free_list_return(&mca_btl_towline_component.frags, &frag->base.super);
}

static void set_memory(btl_towline_frag_t *frag, const towline_btl_segment_t *segment)
{
    frag->segments[0].seg_addr.pval = segment->base;
    frag->segments[0].seg_len = frag->length = segment->length;
}

mca_btl_base_descriptor_t *btl_towline_alloc(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, uint8_t order,
                                             size_t size, uint32_t flags)
{
    btl_towline_frag_t *frag = new_frag((btl_towline_module_t *) btl, endpoint, order, flags);
    towline_btl_segment_t segment;
    if (OPAL_UNLIKELY(NULL == frag)) {
        return NULL;
    }
    if (OPAL_UNLIKELY(TOWLINE_SUCCESS
                      != towline_btl_alloc(endpoint->handle, MCA_BTL_NO_ORDER, flags, size, &frag->descriptor, &segment))) {
        return_frag(frag);
        return NULL;
    }
    set_memory(frag, &segment);
    return &frag->base;
}

int btl_towline_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor)
{
    btl_towline_frag_t *frag = (btl_towline_frag_t *) descriptor;
    int code = towline_btl_free(frag->descriptor);
    if (TOWLINE_ERR_BUSY == code) {
        return OPAL_ERR_RESOURCE_BUSY; /* a send of it is not complete */
    }
    return_frag(frag);
    return OPAL_SUCCESS;
}

/* Data in memory of the module, behind room for a header. */
static mca_btl_base_descriptor_t *pack(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                       struct opal_convertor_t *convertor, uint8_t order, size_t reserve, size_t *size,
                                       uint32_t flags)
{
    btl_towline_frag_t *frag = (btl_towline_frag_t *) btl_towline_alloc(btl, endpoint, order, reserve + *size, flags);
    struct iovec part;
    uint32_t parts = 1;
    size_t packed;
    if (OPAL_UNLIKELY(NULL == frag)) {
        return NULL;
    }
    if (OPAL_UNLIKELY(frag->length < reserve)) {
        btl_towline_free(btl, &frag->base);
        return NULL;
    }
    part.iov_base = (IOVBASE_TYPE *) ((unsigned char *) frag->segments[0].seg_addr.pval + reserve);
    part.iov_len = packed = frag->length - reserve;
    if (0 < packed && OPAL_UNLIKELY(0 > opal_convertor_pack(convertor, &part, &parts, &packed))) {
        btl_towline_free(btl, &frag->base);
        return NULL;
    }
    *size = packed;
    frag->segments[0].seg_len = reserve + packed; /* the send makes the descriptor shorter */
    return &frag->base;
}

mca_btl_base_descriptor_t *btl_towline_prepare_src(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                                   struct opal_convertor_t *convertor, uint8_t order, size_t reserve, size_t *size,
                                                   uint32_t flags)
{
    btl_towline_frag_t *frag;
    towline_btl_segment_t segment;
    struct iovec part = { NULL, *size };
    uint32_t parts = 1;
    if (reserve > btl->btl_max_send_size) {
        return NULL;
    }
    if (*size > btl->btl_max_send_size - reserve) {
        *size = btl->btl_max_send_size - reserve;
    }
    if (0 == *size || opal_convertor_need_buffers(convertor)) {
        return pack(btl, endpoint, convertor, order, reserve, size, flags);
    }
    frag = new_frag((btl_towline_module_t *) btl, endpoint, order, flags);
    if (OPAL_UNLIKELY(NULL == frag)) {
        return NULL;
    }
    /* Without memory to pack into, the convertor gives the address of its bytes. */
    part.iov_len = *size;
    (void) opal_convertor_pack(convertor, &part, &parts, size);
    if (OPAL_UNLIKELY(TOWLINE_SUCCESS
                      != towline_btl_prepare_src(endpoint->handle, MCA_BTL_NO_ORDER, flags, reserve, part.iov_base, size,
                                                 &frag->descriptor, &segment))) {
        return_frag(frag);
        return NULL;
    }
    set_memory(frag, &segment);
    frag->segments[1].seg_addr.pval = part.iov_base;
    frag->segments[1].seg_len = *size;
    frag->base.des_segment_count = 2;
    return &frag->base;
}

/* The tag with which a frame travels. */
static mca_btl_base_tag_t tag_of(mca_btl_base_tag_t tag)
{
    return OPAL_UNLIKELY(BTL_TOWLINE_TAG_TAKEN == tag) ? BTL_TOWLINE_TAG_INSTEAD : tag;
}

/* A send is complete that was not so at once. */
static void on_sent(const towline_btl_sent_t *sent, void *state)
{
    btl_towline_frag_t *frag = state;
    bool is_ours = frag->base.des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP; /* the function may free the frag */
    frag->base.order = sent->order;
    if (NULL != frag->base.des_cbfunc && !frag->module->is_closing) {
        frag->base.des_cbfunc(&frag->module->super, sent->peer, &frag->base, btl_towline_error(sent->status));
    }
    if (is_ours) {
        return_frag(frag); /* Towline frees its descriptor, too */
    }
}

int btl_towline_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, mca_btl_base_descriptor_t *descriptor,
                     mca_btl_base_tag_t tag)
{
    btl_towline_frag_t *frag = (btl_towline_frag_t *) descriptor;
    uint32_t flags = descriptor->des_flags;
    bool is_complete = false;
    int code;
    if (descriptor->des_segments[0].seg_len < frag->length) {
        frag->length = descriptor->des_segments[0].seg_len;
        code = towline_btl_shorten(frag->descriptor, frag->length);
        if (OPAL_UNLIKELY(TOWLINE_SUCCESS != code)) {
            return btl_towline_error(code);
        }
    }
    /* Where a send is complete at once, this function makes the callback, and not the progress of Towline. */
    code = towline_btl_send(endpoint->handle, frag->descriptor, tag_of(tag), flags & ~MCA_BTL_DES_SEND_ALWAYS_CALLBACK, on_sent, frag,
                            &is_complete);
    if (OPAL_UNLIKELY(TOWLINE_SUCCESS != code)) {
        return btl_towline_error(code);
    }
    if (!is_complete) {
        return OPAL_SUCCESS; /* another thread may have completed it by now, so the frag is not touched any more */
    }
    if (flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) {
        descriptor->order = 0;
        descriptor->des_cbfunc(btl, endpoint, descriptor, OPAL_SUCCESS);
    }
    if (flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) {
        return_frag(frag);
    }
    return 1;
}

int btl_towline_sendi(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, struct opal_convertor_t *convertor,
                      void *header, size_t header_size, size_t payload_size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
                      mca_btl_base_descriptor_t **descriptor)
{
    void *payload = NULL;
    if (0 == payload_size || !opal_convertor_need_buffers(convertor)) {
        int code;
        if (0 != payload_size) {
            opal_convertor_get_current_pointer(convertor, &payload);
        }
        code = towline_btl_sendi(endpoint->handle, MCA_BTL_NO_ORDER, flags, tag_of(tag), header, header_size, payload, payload_size,
                                 NULL, NULL);
        if (OPAL_LIKELY(TOWLINE_SUCCESS == code)) {
            return OPAL_SUCCESS;
        }
    }
    if (NULL != descriptor) {
        *descriptor = btl_towline_alloc(btl, endpoint, order, header_size + payload_size, flags);
    }
    return OPAL_ERR_OUT_OF_RESOURCE;
}
