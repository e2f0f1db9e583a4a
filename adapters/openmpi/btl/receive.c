/* Frames that arrive. */
#include "btl_towline.h"

/* Open MPI has one table of functions by tag for all modules. Its owners register there at any time, so it is read for each frame.
 * The endpoint is NULL if the sender was removed; 3.1.0 gives none to the function. */
void btl_towline_on_frame(const towline_btl_received_t *received, void *state)
{
    btl_towline_module_t *module = state;
    mca_btl_base_tag_t tag = BTL_TOWLINE_TAG_INSTEAD == received->tag ? BTL_TOWLINE_TAG_TAKEN : received->tag;
    const mca_btl_active_message_callback_t *call = &mca_btl_base_active_message_trigger[tag];
    mca_btl_base_segment_t segment = { .seg_addr.pval = (void *) received->data, .seg_len = received->length };
    if (OPAL_UNLIKELY(NULL == call->cbfunc || module->is_closing)) {
        return;
    }
#if BTL_VERSION >= 330
    const mca_btl_base_receive_descriptor_t descriptor = { .endpoint = received->peer,
                                                           .des_segments = &segment,
                                                           .des_segment_count = 1,
                                                           .tag = tag,
                                                           .cbdata = call->cbdata };
    call->cbfunc(&module->super, &descriptor);
#else
    mca_btl_base_descriptor_t descriptor = { .des_segments = &segment, .des_segment_count = 1 };
    call->cbfunc(&module->super, tag, &descriptor, call->cbdata);
#endif
}

int btl_towline_listen(btl_towline_module_t *module)
{
    unsigned tag;
    for (tag = 0; tag < MCA_BTL_TAG_MAX; tag++) {
        if (BTL_TOWLINE_TAG_TAKEN != tag
            && TOWLINE_SUCCESS != towline_btl_register(module->btl, (uint8_t) tag, btl_towline_on_frame, module)) {
            towline_print_error("btl", "a function for frames");
            return OPAL_ERROR;
        }
    }
    return OPAL_SUCCESS;
}
