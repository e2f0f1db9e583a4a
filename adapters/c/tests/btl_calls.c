/* The BTL face, rightly and wrongly used: by one process, and by two that carry each other's cards through a socket. The argument is the
 * transport. Prints "done". */
#include "btl_side.h"

#include <pthread.h>

enum { WORDS = 1000, LONG = 50000 };

static void wrong_beginnings(void) {
    towline_place_t place = place_of(0), impossible = place;
    towline_btl_t modules[8];
    towline_btl_attributes_t attributes;
    size_t count = 7;
    impossible.number = impossible.numbers;
    IS(towline_btl_open(0, settings, NULL, modules, 8, &count), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_open(0, settings, &place, NULL, 8, &count), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_open(0, settings, &place, modules, 8, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_open(9, settings, &place, modules, 8, &count), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_open(0, settings, &place, modules, 0, &count), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_open(0, settings, &impossible, modules, 8, &count), TOWLINE_ERR_ARGUMENT);
    TRUE(count == 7);
    for (uint64_t bits = 0; bits < 5; bits++) {
        towline_btl_t none = {bits << 61 | bits};
        IS(towline_btl_attributes(none, &attributes), TOWLINE_ERR_HANDLE);
        IS(towline_btl_progress(none, NULL), TOWLINE_ERR_HANDLE);
        IS(towline_btl_close(none, 0), TOWLINE_ERR_HANDLE);
    }
}

static void keep_done(const towline_btl_done_t *done, void *state) {
    *(towline_btl_done_t *)state = *done;
}

static void *from_another_thread(void *state) {
    IS(towline_btl_progress(*(towline_btl_t *)state, NULL), TOWLINE_ERR_THREAD);
    return NULL;
}

/* One process alone, with itself. */
static void alone(void) {
    towline_btl_t module = opened(0, TOWLINE_THREAD_SINGLE);
    towline_btl_endpoint_t self, forged = {0x123456789, module}, all = {0, module};
    towline_btl_descriptor_t descriptor, no_descriptor = {77, module};
    towline_btl_registration_t registration, no_registration = {0, module};
    towline_btl_attributes_t attributes;
    towline_btl_counters_t counters;
    towline_btl_segment_t segment;
    towline_btl_done_t done = {0};
    uint64_t words[4] = {0, 5, 6, 7}, word = 40;
    unsigned char card[4096], key[TOWLINE_BTL_KEY_MAX], by_address[TOWLINE_BTL_KEY_MAX];
    char text[2000];
    size_t length, key_length, some = 8;
    bool complete, flushed = false;
    uint32_t events;
    pthread_t thread;

    OK(towline_btl_attributes(module, &attributes));
    TRUE(attributes.name[0] != 0 && attributes.eager_limit >= 64 && attributes.max_send_size >= attributes.eager_limit);
    TRUE(attributes.key_bytes > 0 && attributes.key_bytes <= TOWLINE_BTL_KEY_MAX && attributes.bandwidth != 0);
    IS(towline_btl_attributes(module, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_card(module, NULL, 0, &length), TOWLINE_ERR_NO_MEMORY);
    TRUE(length > 0 && length <= sizeof card);
    OK(towline_btl_card(module, card, sizeof card, &length));
    IS(towline_btl_add_peer(module, "no card", 7, NULL, &self), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_add_peer(module, card, length - 1, NULL, &self), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_add_peer(module, card, length, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    OK(towline_btl_add_peer(module, card, length, words, &self));

    /* One-sided operations on own memory are done at once. */
    IS(towline_btl_register_memory(module, all, NULL, 8, 15, &registration), TOWLINE_ERR_ARGUMENT);
    OK(towline_btl_register_memory(module, all, words, sizeof words, TOWLINE_BTL_ACCESS_ANY, &registration));
    IS(towline_btl_key(registration, key, 3, &key_length), TOWLINE_ERR_NO_MEMORY);
    OK(towline_btl_key(registration, key, sizeof key, &key_length));
    TRUE(key_length == attributes.key_bytes);
    uint64_t at = (uint64_t)(uintptr_t)words;
    OK(towline_btl_put(self, &word, 8, no_registration, key, key_length, at, keep_done, &done));
    TRUE(words[0] == 40 && done.status == 0 && done.peer == words);
    OK(towline_btl_get(self, &word, 8, no_registration, key, key_length, at + 8, keep_done, &done));
    TRUE(word == 5);
    OK(towline_btl_atomic(self, 1, 0, 2, key, key_length, at, keep_done, &done));
    TRUE(words[0] == 42 && done.value == 40);
    OK(towline_btl_compare_swap(self, 0, 42, 43, key, key_length, at, keep_done, &done));
    TRUE(words[0] == 43 && done.value == 42);
    IS(towline_btl_atomic(self, 1, 0, 2, key, key_length, at + 4, keep_done, &done), TOWLINE_ERR_NOT_AVAILABLE);
    IS(towline_btl_atomic(self, 99, 0, 2, key, key_length, at, keep_done, &done), TOWLINE_ERR_NOT_AVAILABLE);
    IS(towline_btl_atomic(self, 1, 64, 2, key, key_length, at, keep_done, &done), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_put(self, &word, 8, no_registration, key, key_length, at + 25, NULL, NULL), TOWLINE_ERR_RANGE);
    IS(towline_btl_put(self, &word, 8, no_registration, key, key_length, at - 1, NULL, NULL), TOWLINE_ERR_RANGE);
    IS(towline_btl_put(self, &word, 8, no_registration, key, 3, at, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    /* By its address, memory is reached through any key of its owner. */
    IS(towline_btl_key_by_address(NULL, key_length, 8, by_address), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_key_by_address(key, 3, 8, by_address), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_key_by_address(key, key_length, 8, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_key_by_address(key, key_length, at + 31, by_address), TOWLINE_ERR_RANGE);
    OK(towline_btl_key_by_address(key, key_length, at + 32, by_address));
    IS(towline_btl_key_by_address(by_address, key_length, at, by_address), TOWLINE_ERR_RANGE);
    OK(towline_btl_get(self, &word, 8, no_registration, by_address, key_length, at + 24, keep_done, &done));
    TRUE(word == 7);
    IS(towline_btl_get(self, &word, 8, no_registration, by_address, key_length, at + 25, keep_done, &done), TOWLINE_ERR_DENIED);
    IS(towline_btl_put(self, NULL, 8, no_registration, key, key_length, at, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    OK(towline_btl_deregister(registration));
    IS(towline_btl_deregister(registration), TOWLINE_ERR_HANDLE);
    IS(towline_btl_put(self, &word, 8, no_registration, key, key_length, at, NULL, NULL), TOWLINE_ERR_DENIED);

    /* Peers and descriptors that do not exist. */
    IS(towline_btl_alloc(forged, NO_ORDER, 0, 8, &descriptor, &segment), TOWLINE_ERR_PEER_FAILED);
    IS(towline_btl_alloc(self, NO_ORDER, 0, 8, &descriptor, &segment), TOWLINE_ERR_PEER_FAILED);
    IS(towline_btl_prepare_src(forged, NO_ORDER, 0, 8, words, &some, &descriptor, &segment), TOWLINE_ERR_PEER_FAILED);
    IS(towline_btl_send(forged, no_descriptor, TAG, 0, NULL, NULL, &complete), TOWLINE_ERR_HANDLE);
    IS(towline_btl_sendi(forged, NO_ORDER, 0, TAG, words, 8, NULL, 0, NULL, NULL), TOWLINE_ERR_PEER_FAILED);
    IS(towline_btl_sendi(forged, NO_ORDER, 0, TAG, NULL, 8, NULL, 0, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_btl_free(no_descriptor), TOWLINE_ERR_HANDLE);
    IS(towline_btl_shorten(no_descriptor, 0), TOWLINE_ERR_HANDLE);
    IS(towline_btl_remove_peer(forged), TOWLINE_ERR_HANDLE);
    IS(towline_btl_register(module, 255, NULL, NULL), TOWLINE_ERR_TAG);
    OK(towline_btl_register(module, TAG, NULL, NULL));

    OK(towline_btl_progress(module, &events));
    OK(towline_btl_flush(module, all));
    OK(towline_btl_is_flushed(module, all, &flushed));
    TRUE(flushed);
    OK(towline_btl_counters(module, &counters));
    TRUE(counters.puts == 1 && counters.gets == 2 && counters.atomics == 2 && counters.sent == 0);
    OK(towline_btl_dump(module, all, true, text, sizeof text, &length));
    TRUE(length == strlen(text) && text[0] == '{');
    pthread_create(&thread, NULL, from_another_thread, &module);
    pthread_join(thread, NULL);
    OK(towline_btl_remove_peer(self));
    OK(towline_btl_close(module, 1000));
    IS(towline_btl_close(module, 1000), TOWLINE_ERR_HANDLE);
    IS(towline_btl_alloc(self, NO_ORDER, 0, 8, &descriptor, &segment), TOWLINE_ERR_HANDLE);
}

/* Processes that follow each other under one number. All are modules of this process. Shared memory shows at once that one has ended,
 * without a frame of it. */
static void followers(void) {
    towline_btl_t parent = opened(0, TOWLINE_THREAD_SINGLE);
    towline_btl_endpoint_t endpoint, former = {0, parent};
    for (int life = 0; life < 3; life++) {
        towline_btl_t child = opened(1, TOWLINE_THREAD_SINGLE);
        unsigned char card[4096];
        size_t length = 0;
        OK(towline_btl_card(child, card, sizeof card, &length));
        OK(towline_btl_add_peer(parent, card, length, NULL, &endpoint));
        TRUE(endpoint.bits != former.bits);
        IS(towline_btl_remove_peer(former), TOWLINE_ERR_HANDLE);
        former = endpoint;
        OK(towline_btl_close(child, 1000));
    }
    OK(towline_btl_close(parent, 1000));
}

/* What the functions of this side have seen. */
static struct {
    unsigned frames, replies, sent, errors;
    towline_btl_done_t done;
    bool is_done;
} seen;

static void on_sent(const towline_btl_sent_t *sent, void *state) {
    TRUE(sent->status == 0 && sent->peer == &side && state == &side);
    seen.sent++;
}

static void on_frame(const towline_btl_received_t *received, void *state) {
    const unsigned char *bytes = received->data;
    TRUE(state == &side && received->peer == &side && received->endpoint.bits == side.peer.bits);
    TRUE(received->tag == TAG && received->length >= 2);
    for (size_t at = 2; at < received->length; at++) TRUE(bytes[at] == (unsigned char)(at * 3));
    seen.frames++;
    /* A function of the module may send, and may neither close nor wait. Progress in it does nothing. */
    uint32_t events = 9;
    OK(towline_btl_progress(side.module, &events));
    TRUE(events == 0);
    IS(towline_btl_close(side.module, 0), TOWLINE_ERR_BUSY);
    if (bytes[0] == 'q') {
        towline_btl_descriptor_t descriptor;
        towline_btl_segment_t segment;
        bool complete;
        OK(towline_btl_alloc(received->endpoint, NO_ORDER, 0, 2, &descriptor, &segment));
        TRUE(segment.length == 2);
        memcpy(segment.base, "r-", 2);
        OK(towline_btl_send(received->endpoint, descriptor, TAG, OWNERSHIP, on_sent, &side, &complete));
        seen.sent += complete;
    }
    seen.replies += bytes[0] == 'r';
}

static void on_error(const towline_btl_loss_t *loss, void *state) {
    TRUE(state == &side && strlen(loss->text) > 5);
    seen.errors++;
}

static void on_done(const towline_btl_done_t *done, void *state) {
    TRUE(state == &side && done->peer == &side && done->endpoint.bits == side.peer.bits);
    seen.done = *done;
    seen.is_done = true;
}

static int wait_for_done(void) {
    while (!seen.is_done) OK(towline_btl_progress(side.module, NULL));
    seen.is_done = false;
    return seen.done.status;
}

static void set_functions(void) {
    OK(towline_btl_register(side.module, TAG, on_frame, &side));
    IS(towline_btl_register(side.module, TAG, on_frame, &side), TOWLINE_ERR_BUSY);
    IS(towline_btl_register(side.module, 16, on_frame, &side), TOWLINE_ERR_BUSY);
    OK(towline_btl_on_error(side.module, on_error, &side));
}

/* Frames by descriptors, with data in place, and at once. Each side gets all of them. */
static void frames(void) {
    static unsigned char data[LONG];
    towline_btl_descriptor_t descriptor;
    towline_btl_segment_t segment;
    towline_btl_attributes_t attributes;
    unsigned sent = 0;
    bool complete;
    OK(towline_btl_attributes(side.module, &attributes));
    for (size_t at = 0; at < LONG; at++) data[at] = (unsigned char)(at * 3);

    /* With its own memory: questions, which the other side answers in its function. */
    for (int round = 0; round < 100; round++) {
        OK(towline_btl_alloc(side.peer, NO_ORDER, 0, 100, &descriptor, &segment));
        TRUE(segment.length == 100);
        memcpy(segment.base, data, 100);
        memcpy(segment.base, "q-", 2);
        IS(towline_btl_shorten(descriptor, 101), TOWLINE_ERR_ARGUMENT);
        OK(towline_btl_shorten(descriptor, 50));
        IS(towline_btl_send(side.peer, descriptor, 16, 0, NULL, NULL, &complete), TOWLINE_ERR_TAG);
        IS(towline_btl_send(side.peer, descriptor, TAG, 0, NULL, NULL, NULL), TOWLINE_ERR_ARGUMENT);
        OK(towline_btl_send(side.peer, descriptor, TAG, OWNERSHIP | ALWAYS_CALLBACK, on_sent, &side, &complete));
        sent++;
    }
    /* With data of the program, as much of it as a frame has. */
    size_t length = LONG - 2;
    OK(towline_btl_prepare_src(side.peer, NO_ORDER, 0, 2, data + 2, &length, &descriptor, &segment));
    TRUE(length > 1000 && length <= LONG - 2 && segment.length == 2);
    memcpy(segment.base, "p-", 2);
    OK(towline_btl_send(side.peer, descriptor, TAG, OWNERSHIP | ALWAYS_CALLBACK, on_sent, &side, &complete));
    sent++;
    /* At once. */
    memcpy(data, "i-", 2);
    for (int round = 0; round < 50;) {
        int code = towline_btl_sendi(side.peer, NO_ORDER, 0, TAG, data, 10, data + 10, 40, &descriptor, &segment);
        if (code == TOWLINE_ERR_BUSY) {
            if (descriptor.bits != 0) OK(towline_btl_free(descriptor));
            OK(towline_btl_progress(side.module, NULL));
            continue;
        }
        OK(code);
        round++;
    }
    IS(towline_btl_sendi(side.peer, NO_ORDER, 0, TAG, data, 10, data, attributes.eager_limit, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    /* 100 questions and as many answers each way. */
    while (seen.replies < 100 || seen.frames < 251 || seen.sent < sent + 100) OK(towline_btl_progress(side.module, NULL));
    TRUE(seen.frames == 251 && seen.sent == sent + 100);
    /* A descriptor that the module owned is gone, and one that was freed. */
    IS(towline_btl_free(descriptor), TOWLINE_ERR_HANDLE);
    OK(towline_btl_alloc(side.peer, NO_ORDER, 0, 8, &descriptor, &segment));
    OK(towline_btl_free(descriptor));
    IS(towline_btl_free(descriptor), TOWLINE_ERR_HANDLE);
    IS(towline_btl_send(side.peer, descriptor, TAG, 0, NULL, NULL, &complete), TOWLINE_ERR_HANDLE);
    meet();
}

/* Number 0 uses memory of number 1. */
static void one_sided(uint32_t number) {
    static uint64_t words[WORDS], local[WORDS];
    towline_btl_registration_t registration, none = {0, side.module};
    unsigned char key[TOWLINE_BTL_KEY_MAX];
    uint64_t at = (uint64_t)(uintptr_t)words;
    size_t length;
    bool flushed;
    if (number == 1) {
        towline_btl_endpoint_t all = {0, side.module};
        words[WORDS - 1] = 5;
        OK(towline_btl_register_memory(side.module, all, words, sizeof words, TOWLINE_BTL_ACCESS_ANY, &registration));
        OK(towline_btl_key(registration, key, sizeof key, &length));
        say(side.socket, &length, sizeof length);
        say(side.socket, key, length);
        say(side.socket, &at, sizeof at);
        meet();
        TRUE(words[0] == 1 && words[WORDS - 2] == WORDS - 1 && words[WORDS - 1] == 12);
        OK(towline_btl_deregister(registration));
        meet();
        meet();
        return;
    }
    hear(side.socket, &length, sizeof length);
    hear(side.socket, key, length);
    hear(side.socket, &at, sizeof at);
    for (size_t word = 0; word < WORDS; word++) local[word] = word + 1;
    OK(towline_btl_put(side.peer, local, sizeof local - 8, none, key, length, at, on_done, &side));
    IS(wait_for_done(), 0);
    memset(local, 0, sizeof local);
    OK(towline_btl_get(side.peer, local, sizeof local, none, key, length, at, on_done, &side));
    OK(towline_btl_flush(side.module, side.peer));
    OK(towline_btl_is_flushed(side.module, side.peer, &flushed));
    TRUE(flushed && seen.is_done && local[7] == 8 && local[WORDS - 1] == 5);
    seen.is_done = false;
    uint64_t last = at + 8 * (WORDS - 1);
    OK(towline_btl_atomic(side.peer, 1, 0, 4, key, length, last, on_done, &side));
    IS(wait_for_done(), 0);
    TRUE(seen.done.value == 5);
    OK(towline_btl_compare_swap(side.peer, 0, 9, 10, key, length, last, on_done, &side));
    IS(wait_for_done(), 0);
    TRUE(seen.done.value == 9);
    OK(towline_btl_compare_swap(side.peer, 0, 9, 11, key, length, last, on_done, &side));
    IS(wait_for_done(), 0);
    TRUE(seen.done.value == 10);
    OK(towline_btl_atomic(side.peer, 1, 1, 2, key, length, last, NULL, NULL));
    OK(towline_btl_flush(side.module, side.peer));
    IS(towline_btl_get(side.peer, local, 16, none, key, length, last, on_done, &side), TOWLINE_ERR_RANGE);
    meet();
    meet(); /* the memory is gone now */
    OK(towline_btl_put(side.peer, local, 8, none, key, length, at, on_done, &side));
    while (!seen.is_done) OK(towline_btl_progress(side.module, NULL));
    IS(seen.done.status == TOWLINE_ERR_DENIED ? 0 : seen.done.status, 0);
    seen.is_done = false;
    meet();
}

/* Both sides end. The peer that goes first is no error that matters. */
static void end(uint32_t number) {
    towline_btl_counters_t counters;
    towline_btl_descriptor_t descriptor;
    towline_btl_segment_t segment;
    OK(towline_btl_counters(side.module, &counters));
    TRUE(counters.sent >= 251 && counters.received == 251 && counters.bytes_sent > 50 * 100);
    TRUE(counters.unregistered == 0 && counters.oversize == 0 && (number == 1 || counters.puts == 2));
    OK(towline_btl_remove_peer(side.peer));
    IS(towline_btl_remove_peer(side.peer), TOWLINE_ERR_HANDLE);
    IS(towline_btl_alloc(side.peer, NO_ORDER, 0, 8, &descriptor, &segment), TOWLINE_ERR_PEER_FAILED);
    OK(towline_btl_close(side.module, 10000));
}

static void two(uint32_t number, int socket) {
    connect_sides(number, socket, TOWLINE_THREAD_MULTIPLE);
    set_functions();
    meet();
    frames();
    one_sided(number);
    end(number);
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    choose_transport(argv[1]);
    run_pair(two);
    wrong_beginnings();
    alone();
    if (strcmp(argv[1], "sm") == 0) followers();
    puts("done");
    return 0;
}
