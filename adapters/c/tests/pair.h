/* Two processes that a program makes itself, joined by a socket, through which they carry each other's cards. */
#ifndef PAIR_H
#define PAIR_H

#include "check.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The settings of both, which end with null: the transport. */
static const char *settings[] = {NULL, NULL};

/* Chooses the transport of both. */
static inline void choose_transport(const char *name) {
    static char text[64];
    snprintf(text, sizeof text, "transports=%s", name);
    settings[0] = text;
}

/* The place of one of both. The secret has the number of the process that makes the other one, since several tests run at a time. */
static inline towline_place_t place_of(uint32_t number) {
    static char secret[64];
    towline_place_t place;
    if (secret[0] == 0) snprintf(secret, sizeof secret, "a secret of the tests in C: %ld", (long)getpid());
    OK(towline_place_from_secret(secret, sizeof secret, number, &place));
    place.local = 2;
    place.local_rank = number;
    return place;
}

/* Runs a function in both: in a child as number 1, and here as number 0. It gets the number and the socket. */
static inline void run_pair(void (*run)(uint32_t number, int socket)) {
    int sockets[2], status;
    (void)place_of(0); /* both have the same secret */
    TRUE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t child = fork();
    TRUE(child >= 0);
    alarm(300); /* ends a hang of either */
    if (child == 0) {
        close(sockets[0]);
        run(1, sockets[1]);
        exit(0);
    }
    close(sockets[1]);
    run(0, sockets[0]);
    close(sockets[0]);
    TRUE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void say(int socket, const void *bytes, size_t length) {
    TRUE(write(socket, bytes, length) == (ssize_t)length);
}

static inline void hear(int socket, void *bytes, size_t length) {
    TRUE(recv(socket, bytes, length, MSG_WAITALL) == (ssize_t)length);
}

/* Says bytes, and hears as many or fewer than `room`. */
static inline void exchange(int socket, const void *out, size_t bytes, void *into, size_t room, size_t *length) {
    uint64_t size = bytes;
    say(socket, &size, sizeof size);
    say(socket, out, bytes);
    hear(socket, &size, sizeof size);
    TRUE(size <= room);
    hear(socket, into, size);
    *length = size;
}

#endif
