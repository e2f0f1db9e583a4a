/* Every function, rightly and wrongly used, by one rank that sends to itself, and by two ranks. Each wrong call returns an error. */
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int STANDARD = TOWLINE_SEND_STANDARD;

static void versions_and_texts(void) {
    TRUE(towline_abi_version() >> 16 == TOWLINE_ABI_MAJOR && (towline_abi_version() & 0xffff) >= TOWLINE_ABI_MINOR);
    TRUE(strlen(towline_version()) >= 5);
    TRUE(towline_error_text(NULL, 0) == 0 && towline_error_fault() == TOWLINE_FAULT_NONE);
    for (int code = -40; code < 5; code++) TRUE(strlen(towline_strerror(code)) > 5);
}

static void wrong_beginnings(void) {
    towline_context_t context;
    const char *unknown[] = {"spinn_us=3", NULL}, *bare[] = {"spin_us", NULL}, *wrong[] = {"links=many", NULL};
    const char *nowhere[] = {"transports=sm", "sm.directory=/nowhere", NULL};
    char text[600];
    IS(towline_init(7, NULL, &context), TOWLINE_ERR_ARGUMENT);
    IS(towline_init(TOWLINE_THREAD_SINGLE, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_init(TOWLINE_THREAD_SINGLE, unknown, &context), TOWLINE_ERR_SETTING);
    towline_error_text(text, sizeof text);
    TRUE(strstr(text, "spin_us"));
    IS(towline_init(TOWLINE_THREAD_SINGLE, bare, &context), TOWLINE_ERR_SETTING);
    IS(towline_init(TOWLINE_THREAD_SINGLE, wrong, &context), TOWLINE_ERR_SETTING);
    IS(towline_init(TOWLINE_THREAD_SINGLE, nowhere, &context), TOWLINE_ERR_JOB);
}

/* Messages of a rank to itself. */
static void messages(towline_comm_t comm, uint32_t rank) {
    char out[100], in[100];
    towline_request_t one, other, many[3];
    towline_status_t status, statuses[3];
    towline_message_t message;
    bool done, found;
    size_t index;
    memset(out, 7, sizeof out);

    OK(towline_isend(comm, out, 100, TOWLINE_BYTES, rank, 5, TOWLINE_SEND_SYNCHRONOUS, &one));
    OK(towline_test(&one, &done, NULL));
    TRUE(!done);
    OK(towline_recv(comm, in, 100, TOWLINE_BYTES, TOWLINE_ANY_SOURCE, TOWLINE_ANY_TAG, &status));
    TRUE(status.source == rank && status.tag == 5 && status.bytes == 100 && status.error == 0 && !memcmp(in, out, 100));
    other = one;
    OK(towline_wait(&one, NULL));
    TRUE(one.bits == 0 && one.comm.bits == 0);
    OK(towline_wait(&one, &status)); /* a null request is complete */
    IS(towline_wait(&other, NULL), TOWLINE_ERR_HANDLE); /* a stale one is not */
    TRUE(other.bits == 0);

    IS(towline_send(comm, out, 1, TOWLINE_BYTES, rank, 5, TOWLINE_SEND_READY), TOWLINE_ERR_NOT_READY);
    OK(towline_irecv(comm, in, 10, TOWLINE_BYTES, rank, 6, &one));
    OK(towline_send(comm, out, 20, TOWLINE_BYTES, rank, 6, TOWLINE_SEND_READY));
    IS(towline_wait(&one, &status), TOWLINE_ERR_TRUNCATED);
    TRUE(status.bytes == 10 && status.tag == 6 && status.error == TOWLINE_ERR_TRUNCATED);
    OK(towline_send(comm, out, 3, TOWLINE_BYTES, rank, 0, TOWLINE_SEND_COMPLETE));
    OK(towline_recv(comm, in, 3, TOWLINE_BYTES, rank, 0, NULL));

    for (uint32_t tag = 0; tag < 3; tag++) OK(towline_irecv(comm, &in[tag], 1, TOWLINE_BYTES, rank, tag, &many[tag]));
    OK(towline_test_any(3, many, &index, &status));
    TRUE(index == TOWLINE_NO_INDEX);
    OK(towline_send(comm, out, 1, TOWLINE_BYTES, rank, 1, STANDARD));
    OK(towline_wait_any(3, many, &index, &status));
    TRUE(index == 1 && status.tag == 1 && many[1].bits == 0);
    OK(towline_cancel(many[0], &done));
    TRUE(done);
    OK(towline_send(comm, out, 1, TOWLINE_BYTES, rank, 2, STANDARD));
    IS(towline_wait_all(3, many, statuses), TOWLINE_ERR_CANCELLED);
    TRUE(statuses[0].error == TOWLINE_ERR_CANCELLED && statuses[1].error == 0 && statuses[2].error == 0 && statuses[2].bytes == 1);
    OK(towline_wait_any(3, many, &index, NULL));
    TRUE(index == TOWLINE_NO_INDEX);
    OK(towline_wait_all(0, NULL, NULL));

    OK(towline_iprobe(comm, rank, 9, &found, &status));
    TRUE(!found);
    OK(towline_send(comm, out, 50, TOWLINE_BYTES, rank, 9, STANDARD));
    OK(towline_probe(comm, rank, 9, &status));
    TRUE(status.bytes == 50);
    do OK(towline_improbe(comm, TOWLINE_ANY_SOURCE, 9, &found, &message, &status));
    while (!found);
    OK(towline_iprobe(comm, rank, 9, &found, NULL));
    TRUE(!found);
    towline_message_t copy = message;
    OK(towline_mrecv(&message, in, 100, TOWLINE_BYTES, &status));
    TRUE(message.bits == 0 && status.bytes == 50);
    IS(towline_mrecv(&copy, in, 100, TOWLINE_BYTES, NULL), TOWLINE_ERR_HANDLE);
    OK(towline_send(comm, out, 1, TOWLINE_BYTES, rank, 9, STANDARD));
    OK(towline_mprobe(comm, rank, 9, &message, NULL));
    OK(towline_message_discard(&message));
    IS(towline_message_discard(&message), TOWLINE_ERR_HANDLE);
    OK(towline_send(comm, out, 5, TOWLINE_BYTES, rank, 9, STANDARD));
    OK(towline_mprobe(comm, rank, 9, &message, NULL));
    OK(towline_imrecv(&message, in, 100, TOWLINE_BYTES, &one));
    OK(towline_wait(&one, &status));
    TRUE(status.bytes == 5);
}

/* A list of numbers as text: a type that only the program knows. */
static int pack(void *state, const void *buffer, size_t count, uint64_t offset, void *to, size_t bytes) {
    const char *from = (const char *)buffer;
    ++*(int *)state;
    for (size_t i = 0; i < bytes; i++) ((char *)to)[i] = (char)(from[(offset + i) % (3 * count)] + 1);
    return 0;
}

static int unpack(void *state, void *buffer, size_t count, uint64_t offset, const void *from, size_t bytes) {
    ++*(int *)state;
    (void)count;
    for (size_t i = 0; i < bytes; i++) ((char *)buffer)[offset + i] = (char)(((const char *)from)[i] - 1);
    return 0;
}

static int refuse(void *state, void *buffer, size_t count, uint64_t offset, const void *from, size_t bytes) {
    (void)state, (void)buffer, (void)count, (void)offset, (void)from, (void)bytes;
    return 1;
}

static void layouts(towline_comm_t comm, uint32_t rank) {
    towline_layout_t column, columns, pair, far, none = TOWLINE_NULL(towline_layout_t), functions, refusing, twice;
    uint32_t matrix[12], got[3] = {0};
    uint64_t size, blocks[2] = {4, 1};
    int64_t extent, places[2] = {8, 0};
    towline_request_t request;
    int calls = 0;
    for (uint32_t i = 0; i < 12; i++) matrix[i] = i;

    OK(towline_layout_vector(3, sizeof(uint32_t), 16, none, &column));
    OK(towline_layout_size(column, &size, &extent));
    TRUE(size == 12 && extent == 36);
    OK(towline_irecv(comm, got, 12, TOWLINE_BYTES, rank, 1, &request));
    OK(towline_send(comm, &matrix[1], 1, column, rank, 1, STANDARD));
    OK(towline_wait(&request, NULL));
    TRUE(got[0] == 1 && got[1] == 5 && got[2] == 9);
    /* With an extent of one item, two columns are side by side. The layout is freed while it is in use. */
    OK(towline_layout_resized(column, 4, &columns));
    OK(towline_layout_free(column));
    IS(towline_layout_free(column), TOWLINE_ERR_HANDLE);
    IS(towline_send(comm, matrix, 1, column, rank, 1, STANDARD), TOWLINE_ERR_HANDLE);
    memset(matrix, 0, sizeof matrix);
    OK(towline_irecv(comm, matrix, 2, columns, rank, 1, &request));
    OK(towline_layout_free(columns));
    uint32_t six[6] = {1, 2, 3, 4, 5, 6};
    OK(towline_send(comm, six, sizeof six, TOWLINE_BYTES, rank, 1, STANDARD));
    OK(towline_wait(&request, NULL));
    TRUE(matrix[0] == 1 && matrix[4] == 2 && matrix[8] == 3 && matrix[1] == 4 && matrix[5] == 5 && matrix[9] == 6 && matrix[2] == 0);

    OK(towline_layout_struct(2, blocks, places, NULL, &pair));
    char record[] = "abcdefghijklmnop", parts[6] = "";
    OK(towline_irecv(comm, parts, 5, TOWLINE_BYTES, rank, 1, &request));
    OK(towline_send(comm, record, 1, pair, rank, 1, STANDARD));
    OK(towline_wait(&request, NULL));
    TRUE(!strcmp(parts, "ijkla"));
    OK(towline_layout_free(pair));

    IS(towline_layout_vector(UINT64_MAX, 8, 8, none, &far), TOWLINE_ERR_LAYOUT);
    IS(towline_layout_vector(1, 1, 1, far = (towline_layout_t){77}, &column), TOWLINE_ERR_HANDLE);
    IS(towline_layout_vector(1, 1, 1, none, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_layout_struct(2, NULL, places, NULL, &pair), TOWLINE_ERR_ARGUMENT);
    OK(towline_layout_vector(2, 4, 2, none, &twice)); /* contains bytes twice */
    OK(towline_send(comm, six, 0, twice, rank, 2, STANDARD));
    IS(towline_recv(comm, six, 1, twice, rank, 2, NULL), TOWLINE_ERR_LAYOUT);
    OK(towline_recv(comm, six, 0, TOWLINE_BYTES, rank, 2, NULL));
    OK(towline_layout_free(twice));

    /* Functions: short and long messages, which go in parts. */
    static char text[300000], back[300000];
    OK(towline_layout_functions(3, pack, unpack, &calls, &functions));
    OK(towline_layout_functions(1, NULL, refuse, NULL, &refusing));
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i % 100);
    for (size_t count = 1; count <= sizeof text / 3; count = count * 50) {
        memset(back, 0, sizeof back);
        OK(towline_irecv(comm, back, count, functions, rank, 3, &request));
        OK(towline_send(comm, text, count, functions, rank, 3, STANDARD));
        OK(towline_wait(&request, NULL));
        TRUE(!memcmp(text, back, 3 * count) && calls > 1);
    }
    IS(towline_layout_vector(2, 1, 1, functions, &column), TOWLINE_ERR_LAYOUT);
    OK(towline_irecv(comm, back, 3, refusing, rank, 3, &request));
    OK(towline_send(comm, text, 1, functions, rank, 3, STANDARD));
    IS(towline_wait(&request, NULL), TOWLINE_ERR_LAYOUT);
    /* Without a function nothing is sent. */
    bool found;
    IS(towline_send(comm, text, 1, refusing, rank, 4, STANDARD), TOWLINE_ERR_LAYOUT);
    IS(towline_isend(comm, text, 1, refusing, rank, 4, STANDARD, &request), TOWLINE_ERR_LAYOUT);
    OK(towline_iprobe(comm, rank, 4, &found, NULL));
    TRUE(!found);
    IS(towline_layout_functions(UINT64_MAX, pack, unpack, NULL, &refusing), TOWLINE_ERR_LAYOUT);
    /* Seven levels, and one for several items. */
    static char nested[4096];
    towline_layout_t last, next;
    OK(towline_layout_vector(2, 1, 2, none, &last));
    for (int level = 1, stride = 4; level < 7; level++, stride *= 3) {
        OK(towline_layout_vector(2, 1, stride, last, &next));
        OK(towline_layout_free(last));
        last = next;
    }
    OK(towline_layout_size(last, &size, NULL));
    TRUE(size == 128);
    OK(towline_irecv(comm, back, 256, TOWLINE_BYTES, rank, 5, &request));
    OK(towline_send(comm, nested, 2, last, rank, 5, STANDARD));
    OK(towline_wait(&request, NULL));
    OK(towline_layout_free(last));
    /* Layouts that are made of each other keep nothing of the earlier ones. */
    OK(towline_layout_vector(3, 1, 4, none, &last));
    for (int i = 0; i < 200000; i++) {
        OK(i % 2 ? towline_layout_resized(last, 8 + i % 3, &next) : towline_layout_resized(last, 4, &next));
        OK(towline_layout_free(last));
        last = next;
    }
    OK(towline_layout_free(last));
    OK(towline_layout_vector(1, 4, 4, none, &last));
    for (int i = 0; i < 200000; i++) {
        OK(towline_layout_vector(1, 1, 4, last, &next));
        OK(towline_layout_free(last));
        last = next;
    }
    OK(towline_layout_free(last));
    OK(towline_layout_free(functions));
    OK(towline_layout_free(none));
}

static void wrong_calls(towline_context_t context, towline_comm_t comm, uint32_t size) {
    char byte = 0;
    towline_request_t request = TOWLINE_REQUEST_NULL;
    towline_message_t message = {0};
    towline_comm_t none = {0};
    bool flag;
    size_t index, length;
    uint32_t number;
    IS(towline_send(comm, &byte, 1, TOWLINE_BYTES, size, 1, STANDARD), TOWLINE_ERR_RANK);
    IS(towline_send(comm, &byte, 1, TOWLINE_BYTES, 0, 0x80000000u, STANDARD), TOWLINE_ERR_TAG);
    IS(towline_send(comm, &byte, 1, TOWLINE_BYTES, 0, 1, 9), TOWLINE_ERR_ARGUMENT);
    IS(towline_send(comm, NULL, 1, TOWLINE_BYTES, 0, 1, STANDARD), TOWLINE_ERR_ARGUMENT);
    IS(towline_send(comm, &byte, SIZE_MAX, TOWLINE_BYTES, 0, 1, STANDARD), TOWLINE_ERR_ARGUMENT);
    IS(towline_send(none, &byte, 1, TOWLINE_BYTES, 0, 1, STANDARD), TOWLINE_ERR_HANDLE);
    IS(towline_isend(comm, &byte, 1, TOWLINE_BYTES, 0, 1, STANDARD, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_irecv(comm, &byte, 1, TOWLINE_BYTES, size, 1, &request), TOWLINE_ERR_RANK);
    IS(towline_recv(comm, NULL, 1, TOWLINE_BYTES, 0, 1, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_irecv(comm, &byte, 1, TOWLINE_BYTES, 0, 0x80000001u, &request), TOWLINE_ERR_TAG);
    IS(towline_iprobe(comm, size, 1, &flag, NULL), TOWLINE_ERR_RANK);
    IS(towline_iprobe(comm, 0, 1, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_mprobe(comm, 0, 1, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_mrecv(&message, &byte, 1, TOWLINE_BYTES, NULL), TOWLINE_ERR_HANDLE);
    IS(towline_mrecv(NULL, &byte, 1, TOWLINE_BYTES, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_wait(NULL, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_test(&request, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_wait_all(2, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_wait_any(2, NULL, &index, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_wait_any(0, NULL, NULL, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_comm_rank(comm, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_comm_dup(comm, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_world(context, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_report(context, 5, NULL, 0, &length), TOWLINE_ERR_ARGUMENT);
    /* Invented handles. */
    for (int bit = 0; bit < 64; bit++) {
        uint64_t bits = (uint64_t)1 << bit;
        towline_request_t invented = {bits, comm, context}, of_none = {bits, comm, {context.bits ^ bits}};
        towline_context_t nothing = {context.bits ^ bits};
        towline_comm_t nobody = {comm.bits ^ bits};
        message.bits = bits;
        IS(towline_comm_size(nobody, &number), TOWLINE_ERR_HANDLE);
        IS(towline_comm_free(nobody), TOWLINE_ERR_HANDLE);
        IS(towline_progress(nothing, NULL), TOWLINE_ERR_HANDLE);
        IS(towline_finish(nothing), TOWLINE_ERR_HANDLE);
        IS(towline_message_discard(&message), TOWLINE_ERR_HANDLE);
        IS(towline_wait(&of_none, NULL), TOWLINE_ERR_HANDLE);
        OK(towline_cancel(invented, &flag));
        TRUE(!flag);
        IS(towline_wait(&invented, NULL), TOWLINE_ERR_HANDLE);
    }
}

static void reports(towline_context_t context, towline_comm_t comm, uint32_t rank) {
    char text[2000] = "", cut[5];
    size_t length, whole;
    uint32_t events;
    OK(towline_send(comm, text, 11, TOWLINE_BYTES, rank, 44, STANDARD));
    OK(towline_progress(context, &events));
    OK(towline_report(context, TOWLINE_REPORT_TEXT, text, sizeof text, &length));
    TRUE(strstr(text, "tag 44") && strlen(text) == length);
    OK(towline_report(context, TOWLINE_REPORT_JSON, text, sizeof text, NULL));
    TRUE(text[0] == '{' && strstr(text, "44"));
    OK(towline_report(context, TOWLINE_REPORT_TEXT, cut, sizeof cut, &whole));
    TRUE(whole == length && strlen(cut) == 4);
    OK(towline_recv(comm, text, 11, TOWLINE_BYTES, rank, 44, NULL));
}

struct place {
    towline_context_t context;
    towline_comm_t comm;
    towline_request_t request;
    int code;
};

static void *elsewhere(void *argument) {
    struct place *place = (struct place *)argument;
    uint32_t rank;
    bool done = false;
    towline_status_t status = {.error = 77};
    place->code = towline_comm_rank(place->comm, &rank);
    if (place->code != TOWLINE_SUCCESS) {
        /* What is refused because of the thread changes nothing. */
        towline_request_t before = place->request;
        IS(towline_test(&place->request, &done, &status), TOWLINE_ERR_THREAD);
        IS(towline_wait(&place->request, &status), TOWLINE_ERR_THREAD);
        IS(towline_wait_all(1, &place->request, &status), TOWLINE_ERR_THREAD);
        IS(towline_finish(place->context), TOWLINE_ERR_THREAD);
        TRUE(!memcmp(&before, &place->request, sizeof before) && !done && status.error == 77);
    }
    return NULL;
}

static int from_another_thread(towline_context_t context, towline_comm_t comm) {
    char byte;
    bool cancelled;
    struct place place = {context, comm, TOWLINE_REQUEST_NULL, 1};
    pthread_t thread;
    OK(towline_irecv(comm, &byte, 1, TOWLINE_BYTES, 0, 99, &place.request));
    TRUE(!pthread_create(&thread, NULL, elsewhere, &place) && !pthread_join(thread, NULL));
    OK(towline_cancel(place.request, &cancelled));
    TRUE(cancelled);
    IS(towline_wait(&place.request, NULL), TOWLINE_ERR_CANCELLED);
    return place.code;
}

static void one_context(int level) {
    const char *settings[] = {"requests=1000", " communicators = 9", NULL};
    towline_context_t context;
    towline_comm_t world, copy, part;
    towline_request_t request;
    uint32_t rank, size, number;
    char byte;
    OK(towline_init(level, settings, &context));
    OK(towline_world(context, &world));
    OK(towline_comm_rank(world, &rank));
    OK(towline_comm_size(world, &size));
    OK(towline_comm_dup(world, &copy));
    OK(towline_comm_split(copy, rank == 0 ? 3 : TOWLINE_NO_COLOR, 0, &part));
    TRUE((rank == 0) == (part.bits != 0));
    if (part.bits != 0) {
        OK(towline_comm_size(part, &number));
        TRUE(number == 1);
        messages(part, 0);
        OK(towline_comm_free(part));
    }
    messages(world, rank);
    layouts(copy, rank);
    wrong_calls(context, copy, size);
    reports(context, world, rank);
    OK(towline_comm_acknowledge_failures(copy));
    TRUE(from_another_thread(context, world) == (level >= TOWLINE_THREAD_SERIALIZED ? TOWLINE_SUCCESS : TOWLINE_ERR_THREAD));
    OK(towline_irecv(copy, &byte, 1, TOWLINE_BYTES, rank, 1, &request));
    OK(towline_comm_free(copy));
    IS(towline_comm_size(copy, &number), TOWLINE_ERR_HANDLE);
    IS(towline_wait(&request, NULL), TOWLINE_ERR_CANCELLED);
    /* An operation that has matched goes on without its communicator, and is still to be waited for. */
    static char long_out[1000000], long_in[1000000];
    towline_request_t receiving;
    OK(towline_comm_dup(world, &copy));
    OK(towline_isend(copy, long_out, sizeof long_out, TOWLINE_BYTES, rank, 1, TOWLINE_SEND_SYNCHRONOUS, &request));
    OK(towline_irecv(copy, long_in, sizeof long_in, TOWLINE_BYTES, rank, 1, &receiving));
    for (int i = 0; i < 10; i++) OK(towline_progress(context, NULL)); /* now they have matched */
    OK(towline_comm_free(copy));
    TRUE(towline_wait(&receiving, NULL) != TOWLINE_ERR_HANDLE && towline_wait(&request, NULL) != TOWLINE_ERR_HANDLE);
    IS(towline_comm_free(world), TOWLINE_ERR_ARGUMENT);
    OK(towline_world(context, &copy));
    TRUE(copy.bits == world.bits);
    /* A receive that is in progress at the end is over with its context. */
    OK(towline_irecv(world, &byte, 1, TOWLINE_BYTES, rank, 1, &request));
    OK(towline_finish(context));
    IS(towline_wait(&request, NULL), TOWLINE_ERR_HANDLE);
    IS(towline_finish(context), TOWLINE_ERR_HANDLE);
    IS(towline_comm_rank(world, &rank), TOWLINE_ERR_HANDLE);
}

/* Two ranks exchange messages of many lengths, with their memory between others. */
static void two_ranks(void) {
    towline_context_t context;
    towline_comm_t world;
    uint32_t rank, size;
    OK(towline_init(TOWLINE_THREAD_FUNNELED, NULL, &context));
    OK(towline_world(context, &world));
    OK(towline_comm_rank(world, &rank));
    OK(towline_comm_size(world, &size));
    TRUE(size == 2);
    for (size_t bytes = 0; bytes <= 3000000; bytes = bytes * 3 + 1) {
        unsigned char *out = malloc(bytes + 1), *in = calloc(bytes + 1, 1);
        towline_request_t requests[2];
        for (size_t i = 0; i < bytes; i++) out[i] = (unsigned char)(i * 7 + rank);
        OK(towline_irecv(world, in, bytes, TOWLINE_BYTES, 1 - rank, 1, &requests[0]));
        OK(towline_isend(world, out, bytes, TOWLINE_BYTES, 1 - rank, 1, STANDARD, &requests[1]));
        OK(towline_wait_all(2, requests, NULL));
        for (size_t i = 0; i < bytes; i++) TRUE(in[i] == (unsigned char)(i * 7 + 1 - rank));
        TRUE(in[bytes] == 0);
        free(out), free(in);
    }
    if (rank == 1) {
        OK(towline_leave(context));
        return;
    }
    char byte;
    towline_status_t status;
    IS(towline_recv(world, &byte, 1, TOWLINE_BYTES, 1, 1, &status), TOWLINE_ERR_PEER_FINISHED);
    TRUE(status.error == TOWLINE_ERR_PEER_FINISHED && status.source == 1);
    TRUE(towline_error_fault() == TOWLINE_FAULT_PEER);
    OK(towline_finish(context));
}

int main(int count, char **words) {
    versions_and_texts();
    if (count > 1 && !strcmp(words[1], "two")) {
        two_ranks();
    } else {
        wrong_beginnings();
        for (int level = TOWLINE_THREAD_SINGLE; level <= TOWLINE_THREAD_MULTIPLE; level++) one_context(level);
    }
    puts("done");
    return 0;
}
