/* Promises of core/CONTRACTS.md that the BTL face keeps for C: each by a function with the number of the promise. The arguments are the
 * transport, the promise, and "poison" if the library was built with debug assertions. Prints "done". */
#include "btl_side.h"

/* What the function for frames has seen. */
static struct {
    unsigned frames;
    const unsigned char *kept;
    size_t length;
} seen;
static bool poisons;

static void progress_until(const unsigned *count, unsigned wanted) {
    while (*count < wanted) OK(towline_btl_progress(side.module, NULL));
}

/* Sets the function for frames, and waits until both sides have it. */
static void listen_both(towline_btl_receive_fn function, void *state) {
    OK(towline_btl_register(side.module, TAG, function, state));
    meet();
}

/* Sends a frame of some bytes, all with one value, in memory of the module. */
static void send_frame(unsigned char value, size_t length, uint8_t order) {
    towline_btl_descriptor_t descriptor;
    towline_btl_segment_t segment;
    bool complete;
    OK(towline_btl_alloc(side.peer, order, 0, length, &descriptor, &segment));
    TRUE(segment.length == length);
    memset(segment.base, value, length);
    OK(towline_btl_send(side.peer, descriptor, TAG, OWNERSHIP, NULL, NULL, &complete));
}

/* The first frame has the endpoint of its sender, which the function removes. No later frame may have it. */
static void remove_sender(const towline_btl_received_t *received, void *state) {
    TRUE(received->tag == TAG && received->length == 5 && *(const unsigned char *)received->data == 7 && state == &seen);
    TRUE(received->endpoint.btl.bits == side.module.bits);
    if (seen.frames++ == 0) {
        TRUE(received->endpoint.bits == side.peer.bits && received->peer == &side);
        OK(towline_btl_remove_peer(received->endpoint));
        return;
    }
    TRUE(received->endpoint.bits == 0 && received->peer == NULL);
}

/* A missing endpoint is refused by each call that needs one, and by none with a crash. */
static void use_missing_endpoint(void) {
    towline_btl_endpoint_t missing = {0, side.module};
    towline_btl_registration_t none = {0, side.module};
    towline_btl_descriptor_t descriptor;
    towline_btl_segment_t segment;
    unsigned char key[TOWLINE_BTL_KEY_MAX] = {0};
    size_t length = 4;
    uint32_t word = 0;
    IS(towline_btl_alloc(missing, NO_ORDER, 0, 8, &descriptor, &segment), TOWLINE_ERR_PEER_FAILED);
    IS(towline_btl_prepare_src(missing, NO_ORDER, 0, 8, &word, &length, &descriptor, &segment), TOWLINE_ERR_PEER_FAILED);
    IS(towline_btl_sendi(missing, NO_ORDER, 0, TAG, &word, 4, NULL, 0, NULL, NULL), TOWLINE_ERR_PEER_FAILED);
    TRUE(towline_btl_put(missing, &word, 4, none, key, sizeof key, 0, NULL, NULL) != TOWLINE_SUCCESS);
    IS(towline_btl_remove_peer(missing), TOWLINE_ERR_HANDLE);
}

static void b8(void) {
    listen_both(remove_sender, &seen);
    if (side.number == 0) {
        for (int frame = 0; frame < 3; frame++) send_frame(7, 5, NO_ORDER);
    } else {
        progress_until(&seen.frames, 1);
        use_missing_endpoint();
    }
}

static void keep_address(const towline_btl_received_t *received, void *state) {
    const unsigned char *bytes = received->data;
    TRUE(state == &seen);
    for (size_t at = 0; at < received->length; at++) TRUE(bytes[at] == 9);
    seen.kept = bytes;
    seen.length = received->length;
    seen.frames++;
}

/* The bytes are whole in the function. A debug build overwrites them afterwards. */
static void b9(void) {
    static const size_t lengths[] = {1, 55, 57, 1000};
    listen_both(keep_address, &seen);
    for (unsigned frame = 0; frame < sizeof lengths / sizeof *lengths; frame++) {
        if (side.number == 0) {
            send_frame(9, lengths[frame], NO_ORDER);
        } else {
            progress_until(&seen.frames, frame + 1);
            TRUE(seen.length == lengths[frame]);
            for (size_t at = 0; poisons && at < seen.length; at++) TRUE(seen.kept[at] == 0xdb);
        }
        meet();
    }
}

/* Number 1 registers memory for an endpoint, and gives its key and address to number 0. */
static towline_btl_registration_t give_memory(void *memory, size_t bytes, towline_btl_endpoint_t only) {
    towline_btl_registration_t registration;
    unsigned char key[TOWLINE_BTL_KEY_MAX];
    uint64_t at = (uint64_t)(uintptr_t)memory;
    size_t length;
    OK(towline_btl_register_memory(side.module, only, memory, bytes, TOWLINE_BTL_ACCESS_ANY, &registration));
    OK(towline_btl_key(registration, key, sizeof key, &length));
    say(side.socket, &length, sizeof length);
    say(side.socket, key, length);
    say(side.socket, &at, sizeof at);
    return registration;
}

static void keep_status(const towline_btl_done_t *done, void *state) {
    *(unsigned *)state += done->status == 0;
}

/* Number 0 puts a word there, with exactly the bytes of the key. */
static void put_word(uint64_t word) {
    towline_btl_registration_t none = {0, side.module};
    unsigned done = 0;
    size_t length;
    uint64_t at;
    hear(side.socket, &length, sizeof length);
    TRUE(length <= TOWLINE_BTL_KEY_MAX);
    unsigned char *key = malloc(length);
    hear(side.socket, key, length);
    hear(side.socket, &at, sizeof at);
    OK(towline_btl_put(side.peer, &word, sizeof word, none, key, length, at, keep_status, &done));
    free(key); /* the module has copied it */
    progress_until(&done, 1);
}

/* A key has the bytes that the module says, at most 256. Without any byte of it, nothing is accessed. */
static void b26(void) {
    static uint64_t word;
    towline_btl_endpoint_t all = {0, side.module};
    towline_btl_attributes_t attributes;
    OK(towline_btl_attributes(side.module, &attributes));
    TRUE(attributes.key_bytes > 0 && attributes.key_bytes <= 256 && TOWLINE_BTL_KEY_MAX == 256);
    if (side.number == 0) {
        uint64_t value = 3;
        towline_btl_registration_t none = {0, side.module};
        IS(towline_btl_put(side.peer, &value, 8, none, NULL, 0, 0, NULL, NULL), TOWLINE_ERR_ARGUMENT);
        put_word(26);
        meet();
        return;
    }
    towline_btl_registration_t registration = give_memory(&word, sizeof word, all);
    unsigned char key[TOWLINE_BTL_KEY_MAX];
    size_t length = 0;
    IS(towline_btl_key(registration, NULL, 0, &length), TOWLINE_ERR_NO_MEMORY);
    TRUE(length == attributes.key_bytes);
    IS(towline_btl_key(registration, key, length - 1, &length), TOWLINE_ERR_NO_MEMORY);
    OK(towline_btl_key(registration, key, attributes.key_bytes, &length));
    TRUE(length == attributes.key_bytes);
    meet();
    TRUE(word == 26);
    OK(towline_btl_deregister(registration));
}

/* Memory for any endpoint, and for the one of the peer. An endpoint that does not exist gets none. */
static void b27(void) {
    static uint64_t words[2];
    if (side.number == 0) {
        put_word(27);
        put_word(28);
        meet();
        return;
    }
    towline_btl_endpoint_t any = {0, side.module}, forged = {0x123456789, side.module};
    towline_btl_registration_t first = give_memory(&words[0], 8, any), second = give_memory(&words[1], 8, side.peer), refused;
    IS(towline_btl_register_memory(side.module, forged, words, 8, 15, &refused), TOWLINE_ERR_PEER_FAILED);
    meet();
    TRUE(words[0] == 27 && words[1] == 28);
    OK(towline_btl_deregister(first));
    OK(towline_btl_deregister(second));
}

/* Cards are copies: what the program does to one changes no other. A short buffer is an error of its own. */
static void x5(void) {
    static unsigned char one[4096], other[4096];
    size_t length = 0, again = 0;
    towline_btl_endpoint_t endpoint;
    OK(towline_btl_card(side.module, one, sizeof one, &length));
    IS(towline_btl_card(side.module, other, length - 1, &again), TOWLINE_ERR_NO_MEMORY);
    TRUE(again == length && other[0] == 0);
    OK(towline_btl_card(side.module, other, length, &again));
    TRUE(again == length && memcmp(one, other, length) == 0);
    memset(one, 0xff, length);
    IS(towline_btl_add_peer(side.module, one, length, NULL, &endpoint), TOWLINE_ERR_ARGUMENT);
    OK(towline_btl_card(side.module, one, sizeof one, &again));
    TRUE(again == length && memcmp(one, other, length) == 0);
    meet();
}

static void count_frame(const towline_btl_received_t *received, void *state) {
    (void)received;
    ++*(unsigned *)state;
}

/* Frames without an order leave at once: their sender needs no answer of the peer, and may make no progress any more. A frame with an
 * order may wait for an answer, which only progress takes. */
static void b47(void) {
    enum { FRAMES = 20 };
    char mark = 0;
    listen_both(count_frame, &seen.frames);
    /* The first frame connects the sides. */
    if (side.number == 0) send_frame(1, 8, NO_ORDER);
    else progress_until(&seen.frames, 1);
    meet();
    if (side.number == 0) {
        for (int frame = 0; frame < FRAMES; frame++) send_frame(1, 8, NO_ORDER);
        hear(side.socket, &mark, 1); /* without progress */
    } else {
        progress_until(&seen.frames, 1 + FRAMES);
        say(side.socket, &mark, 1);
    }
}

static const struct {
    const char *name;
    void (*check)(void);
} rows[] = {{"b8", b8}, {"b9", b9}, {"b26", b26}, {"b27", b27}, {"b47", b47}, {"x5", x5}};
static size_t chosen;

static void of_two(uint32_t number, int socket) {
    connect_sides(number, socket, TOWLINE_THREAD_SINGLE);
    rows[chosen].check();
    OK(towline_btl_close(side.module, 10000));
}

int main(int argc, char **argv) {
    TRUE(argc >= 3);
    choose_transport(argv[1]);
    poisons = argc > 3 && strcmp(argv[3], "poison") == 0;
    for (chosen = 0; chosen < sizeof rows / sizeof *rows; chosen++) {
        if (strcmp(rows[chosen].name, argv[2]) == 0) {
            run_pair(of_two);
            puts("done");
            return 0;
        }
    }
    fail(__LINE__, argv[2], "there is no such promise here");
}
