/* One of two processes with a module of the BTL face each. */
#ifndef BTL_SIDE_H
#define BTL_SIDE_H

#include "pair.h"

enum { TAG = 0x80, OWNERSHIP = 2, ALWAYS_CALLBACK = 4, NO_ORDER = 255 };

static struct {
    int socket;
    uint32_t number;
    towline_btl_t module;
    /* The other process. */
    towline_btl_endpoint_t peer;
} side;

static inline towline_btl_t opened(uint32_t number, int level) {
    towline_place_t place = place_of(number);
    towline_btl_t module;
    size_t count = 0;
    OK(towline_btl_open(level, settings, &place, &module, 1, &count));
    TRUE(count == 1);
    return module;
}

/* Opens the module of this side, and adds the other one. */
static inline void connect_sides(uint32_t number, int socket, int level) {
    static unsigned char card[4096], other[4096];
    size_t length = 0, other_length = 0;
    side.socket = socket;
    side.number = number;
    side.module = opened(number, level);
    OK(towline_btl_card(side.module, card, sizeof card, &length));
    exchange(socket, card, length, other, sizeof other, &other_length);
    OK(towline_btl_add_peer(side.module, other, other_length, &side, &side.peer));
    towline_btl_endpoint_t again;
    OK(towline_btl_add_peer(side.module, other, other_length, &side, &again));
    TRUE(again.bits == side.peer.bits);
}

/* Both sides come here; they make progress meanwhile. */
static inline void meet(void) {
    char mark = 'm';
    say(side.socket, &mark, 1);
    ssize_t got;
    while ((got = recv(side.socket, &mark, 1, MSG_DONTWAIT)) != 1) {
        TRUE(got != 0); /* the other one has failed */
        OK(towline_btl_progress(side.module, NULL));
    }
}

#endif
