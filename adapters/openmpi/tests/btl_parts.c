/* Promises of core/CONTRACTS.md that single functions of the BTL component keep. The program is linked with the files of the component,
 * and starts no MPI job. The argument is the promise. Prints "done". */
#include "../btl/btl_towline.h"

#include "check.h"

static btl_towline_module_t module;

/* What the function of Open MPI has seen. */
static struct {
    unsigned frames;
    bool has_endpoint;
    unsigned char byte;
    size_t segments;
} seen;

#if BTL_VERSION >= 330
static void on_frame(mca_btl_base_module_t *btl, const mca_btl_base_receive_descriptor_t *descriptor)
{
    TRUE(btl == &module.super && 0x80 == descriptor->tag && &seen == descriptor->cbdata);
    seen.has_endpoint = NULL != descriptor->endpoint;
    seen.segments = descriptor->des_segment_count;
    seen.byte = *(const unsigned char *) descriptor->des_segments[0].seg_addr.pval;
    seen.frames++;
}
#else
static void on_frame(mca_btl_base_module_t *btl, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t *descriptor, void *cbdata)
{
    TRUE(btl == &module.super && 0x80 == tag && &seen == cbdata);
    seen.segments = descriptor->des_segment_count;
    seen.byte = *(const unsigned char *) descriptor->des_segments[0].seg_addr.pval;
    seen.frames++;
}
#endif

/* A frame without an endpoint, and one with it. A tag without a function is no fault. */
static void b8(void)
{
    static struct mca_btl_base_endpoint_t sender;
    unsigned char byte = 8;
    towline_btl_received_t received = { .peer = NULL, .data = &byte, .length = 1, .tag = 0x80 };
    mca_btl_base_active_message_trigger[0x80].cbfunc = on_frame;
    mca_btl_base_active_message_trigger[0x80].cbdata = &seen;
    btl_towline_on_frame(&received, &module);
    TRUE(1 == seen.frames && 8 == seen.byte && 1 == seen.segments && !seen.has_endpoint);
    received.peer = &sender;
    btl_towline_on_frame(&received, &module);
    TRUE(2 == seen.frames && seen.has_endpoint == (BTL_VERSION >= 330));
    received.tag = 0x81;
    btl_towline_on_frame(&received, &module);
    TRUE(2 == seen.frames);
}

/* A module whose handles have no bytes has no one-sided operations, and asks for no registration. */
static void b26(void)
{
    mca_btl_base_module_t with = btl_towline_template, without = btl_towline_template;
    towline_btl_attributes_t own = { .name = "sm", .flags = ~0u, .atomics = ~0u, .key_bytes = 40 };
    btl_towline_set_attributes(&with, &own);
    TRUE(40 == with.btl_registration_handle_size && NULL != with.btl_register_mem && NULL != with.btl_deregister_mem);
    TRUE(MCA_BTL_FLAGS_RDMA == (with.btl_flags & MCA_BTL_FLAGS_RDMA));
    own.key_bytes = 0;
    btl_towline_set_attributes(&without, &own);
    TRUE(0 == without.btl_registration_handle_size && NULL == without.btl_register_mem && NULL == without.btl_deregister_mem);
    TRUE(0 == (without.btl_flags & (MCA_BTL_FLAGS_RDMA | MCA_BTL_FLAGS_ATOMIC_OPS | MCA_BTL_FLAGS_ATOMIC_FOPS)));
    TRUE(without.btl_flags & MCA_BTL_FLAGS_SEND);
}

int main(int argc, char **argv)
{
    TRUE(2 == argc);
    if (0 == strcmp(argv[1], "b8")) {
        b8();
    } else {
        TRUE(0 == strcmp(argv[1], "b26"));
        b26();
    }
    puts("done");
    return 0;
}
