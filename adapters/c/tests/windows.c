/* The functions of windows, rightly and wrongly used, by one rank that accesses its own part, and by two ranks. */
#include "check.h"

#include <string.h>

static const uint32_t ALL = TOWLINE_ACCESS_ALL;

/* Two words that are combined, and what comes out; the words of all types have these values. */
struct sample {
    int op;
    int first, operand, result;
};

static const struct sample SAMPLES[] = {
    {TOWLINE_ADD, 5, 7, 12},       {TOWLINE_AND, 12, 10, 8},      {TOWLINE_OR, 12, 10, 14},       {TOWLINE_XOR, 12, 10, 6},
    {TOWLINE_LOGICAL_AND, 5, 0, 0}, {TOWLINE_LOGICAL_OR, 5, 0, 1}, {TOWLINE_LOGICAL_XOR, 5, 3, 0}, {TOWLINE_SWAP, 5, 9, 9},
    {TOWLINE_MIN, 5, 3, 3},        {TOWLINE_MAX, 5, 9, 9},
};

/* A word of some type. */
union word {
    uint32_t u32;
    int32_t i32;
    uint64_t u64;
    int64_t i64;
    float f32;
    double f64;
};

static union word word_of(int type, int value) {
    union word word;
    memset(&word, 0, sizeof word);
    switch (type) {
    case TOWLINE_UINT32: word.u32 = (uint32_t)value; break;
    case TOWLINE_INT32: word.i32 = value; break;
    case TOWLINE_UINT64: word.u64 = (uint64_t)value; break;
    case TOWLINE_INT64: word.i64 = value; break;
    case TOWLINE_FLOAT: word.f32 = (float)value; break;
    default: word.f64 = value; break;
    }
    return word;
}

static size_t size_of(int type) {
    return type == TOWLINE_UINT64 || type == TOWLINE_INT64 || type == TOWLINE_DOUBLE ? 8 : 4;
}

static bool has(int type, int op) {
    const bool is_float = type == TOWLINE_FLOAT || type == TOWLINE_DOUBLE;
    const bool is_unsigned = type == TOWLINE_UINT32 || type == TOWLINE_UINT64;
    if (op == TOWLINE_AND || op == TOWLINE_OR || op == TOWLINE_XOR) return !is_float;
    return op != TOWLINE_MIN && op != TOWLINE_MAX ? true : !is_unsigned;
}

/* All operations on words of all types, at bytes 8 to 24 of a rank's part. */
static void words(towline_window_t window, uint32_t rank) {
    for (int type = TOWLINE_UINT32; type <= TOWLINE_DOUBLE; type++) {
        const size_t size = size_of(type);
        for (size_t i = 0; i < sizeof SAMPLES / sizeof *SAMPLES; i++) {
            const struct sample *sample = &SAMPLES[i];
            union word first = word_of(type, sample->first), operand = word_of(type, sample->operand), old, now;
            union word result = word_of(type, sample->result);
            const union word before = {.u64 = 0xeeeeeeeeeeeeeeee};
            old = before;
            OK(towline_window_put(window, &first, size, rank, 16));
            OK(towline_window_flush(window, rank));
            if (!has(type, sample->op)) {
                IS(towline_window_fetch_op(window, sample->op, type, &operand, &old, rank, 16), TOWLINE_ERR_ARGUMENT);
                IS(towline_window_accumulate(window, sample->op, type, &operand, 1, rank, 16), TOWLINE_ERR_ARGUMENT);
                TRUE(!memcmp(&old, &before, sizeof old));
                continue;
            }
            OK(towline_window_fetch_op(window, sample->op, type, &operand, &old, rank, 16));
            TRUE(!memcmp(&old, &first, size) && (size == 8 || !memcmp((char *)&old + 4, (const char *)&before + 4, 4)));
            OK(towline_window_get(window, &now, size, rank, 16));
            TRUE(!memcmp(&now, &result, size));
            /* The same without the old word, for two words at once. The operand may be changed afterwards. */
            unsigned char two[16], got[16];
            memcpy(two, &first, size), memcpy(two + size, &first, size);
            OK(towline_window_put(window, two, 2 * size, rank, 8));
            OK(towline_window_flush(window, rank));
            memcpy(two, &operand, size), memcpy(two + size, &operand, size);
            OK(towline_window_accumulate(window, sample->op, type, two, 2, rank, 8));
            memset(two, 0x77, sizeof two);
            OK(towline_window_flush(window, rank));
            OK(towline_window_get(window, got, 2 * size, rank, 8));
            TRUE(!memcmp(got, &result, size) && !memcmp(got + size, &result, size));
        }
        union word five = word_of(type, 5), six = word_of(type, 6), old;
        OK(towline_window_put(window, &five, size, rank, 8));
        OK(towline_window_flush_all(window));
        if (type >= TOWLINE_FLOAT) {
            IS(towline_window_compare_swap(window, type, &five, &six, &old, rank, 8), TOWLINE_ERR_ARGUMENT);
            continue;
        }
        OK(towline_window_compare_swap(window, type, &five, &six, &old, rank, 8));
        TRUE(!memcmp(&old, &five, size));
        OK(towline_window_compare_swap(window, type, &five, &five, &old, rank, 8));
        TRUE(!memcmp(&old, &six, size)); /* it was not five any more */
        OK(towline_window_fetch_op(window, TOWLINE_ADD, type, &five, &five, rank, 8)); /* the old word may take the operand's place */
        TRUE(!memcmp(&five, &six, size));
    }
}

/* What is refused before anything is done. */
static void wrong_calls(towline_window_t window, uint32_t rank, uint32_t size, uint64_t bytes) {
    char byte = 1;
    uint64_t word = 3, old = 4;
    IS(towline_window_put(window, &byte, 1, size, 0), TOWLINE_ERR_RANK);
    IS(towline_window_get(window, &byte, 1, size, 0), TOWLINE_ERR_RANK);
    IS(towline_window_flush(window, size), TOWLINE_ERR_RANK);
    IS(towline_window_size(window, size, &word), TOWLINE_ERR_RANK);
    IS(towline_window_fetch_op(window, TOWLINE_ADD, TOWLINE_UINT64, &word, &old, size, 0), TOWLINE_ERR_RANK);
    /* Beyond the part, also where the sum of offset and length does not fit into 64 bits. */
    const uint64_t beyond[] = {bytes, bytes + 1, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        IS(towline_window_put(window, &byte, 1, rank, beyond[i]), TOWLINE_ERR_RANGE);
        IS(towline_window_get(window, &byte, 1, rank, beyond[i]), TOWLINE_ERR_RANGE);
        IS(towline_window_fetch_op(window, TOWLINE_ADD, TOWLINE_UINT64, &word, &old, rank, beyond[i]), TOWLINE_ERR_RANGE);
        IS(towline_window_compare_swap(window, TOWLINE_UINT64, &word, &word, &old, rank, beyond[i]), TOWLINE_ERR_RANGE);
        IS(towline_window_accumulate(window, TOWLINE_ADD, TOWLINE_UINT64, &word, 1, rank, beyond[i]), TOWLINE_ERR_RANGE);
    }
    OK(towline_window_put(window, &byte, 0, rank, bytes));
    OK(towline_window_put(window, NULL, 0, rank, 0));
    OK(towline_window_get(window, NULL, 0, rank, 0));
    OK(towline_window_accumulate(window, TOWLINE_ADD, TOWLINE_UINT64, NULL, 0, rank, 0));
    for (uint64_t offset = 1; offset < 8; offset++) {
        IS(towline_window_fetch_op(window, TOWLINE_ADD, TOWLINE_UINT64, &word, &old, rank, offset), TOWLINE_ERR_RANGE);
        IS(towline_window_accumulate(window, TOWLINE_ADD, TOWLINE_DOUBLE, &word, 1, rank, offset), TOWLINE_ERR_RANGE);
        int code = offset % 4 == 0 ? TOWLINE_SUCCESS : TOWLINE_ERR_RANGE;
        uint32_t none = 0;
        IS(towline_window_compare_swap(window, TOWLINE_UINT32, &none, &none, &old, rank, offset), code);
    }
    IS(towline_window_put(window, NULL, 1, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_get(window, NULL, 1, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_put(window, &byte, SIZE_MAX, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_accumulate(window, TOWLINE_ADD, TOWLINE_UINT64, NULL, 1, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_accumulate(window, TOWLINE_ADD, TOWLINE_UINT64, &word, SIZE_MAX / 4, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_accumulate(window, 10, TOWLINE_UINT64, &word, 1, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_accumulate(window, TOWLINE_ADD, 6, &word, 1, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_fetch_op(window, -1, TOWLINE_UINT64, &word, &old, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_fetch_op(window, TOWLINE_ADD, -1, &word, &old, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_fetch_op(window, TOWLINE_ADD, TOWLINE_UINT64, NULL, &old, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_fetch_op(window, TOWLINE_ADD, TOWLINE_UINT64, &word, NULL, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_compare_swap(window, 77, &word, &word, &old, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_compare_swap(window, TOWLINE_UINT64, NULL, &word, &old, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_compare_swap(window, TOWLINE_UINT64, &word, NULL, &old, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_compare_swap(window, TOWLINE_UINT64, &word, &word, NULL, rank, 0), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_size(window, rank, NULL), TOWLINE_ERR_ARGUMENT);
    TRUE(word == 3 && byte == 1);
    OK(towline_window_base(window, NULL, NULL));
    for (int bit = 0; bit < 64; bit++) {
        towline_window_t invented = {window.bits ^ (uint64_t)1 << bit};
        IS(towline_window_put(invented, &byte, 1, rank, 0), TOWLINE_ERR_HANDLE);
        IS(towline_window_get(invented, &byte, 1, rank, 0), TOWLINE_ERR_HANDLE);
        IS(towline_window_fence(invented), TOWLINE_ERR_HANDLE);
        IS(towline_window_free(invented), TOWLINE_ERR_HANDLE);
    }
}

/* Each right alone: the operations with it work, and those without it are refused. */
static void rights(towline_comm_t comm, uint32_t rank) {
    const uint32_t all[] = {0, TOWLINE_ACCESS_READ, TOWLINE_ACCESS_WRITE, TOWLINE_ACCESS_ATOMIC, ALL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const uint32_t access = all[i];
        towline_window_t window;
        uint64_t word = 1, old;
        OK(towline_window_allocate(comm, 64, access, &window));
        OK(towline_window_put(window, &word, sizeof word, rank, 0));
        IS(towline_window_flush(window, rank), access & TOWLINE_ACCESS_WRITE ? TOWLINE_SUCCESS : TOWLINE_ERR_DENIED);
        OK(towline_window_flush(window, rank)); /* it has been reported */
        int code = access & TOWLINE_ACCESS_READ ? TOWLINE_SUCCESS : TOWLINE_ERR_DENIED;
        IS(towline_window_get(window, &old, sizeof old, rank, 0), code);
        code = access & TOWLINE_ACCESS_ATOMIC ? TOWLINE_SUCCESS : TOWLINE_ERR_DENIED;
        IS(towline_window_fetch_op(window, TOWLINE_ADD, TOWLINE_UINT64, &word, &old, rank, 0), code);
        IS(towline_window_compare_swap(window, TOWLINE_UINT64, &word, &old, &old, rank, 0), code);
        OK(towline_window_accumulate(window, TOWLINE_ADD, TOWLINE_UINT64, &word, 1, rank, 0));
        IS(towline_window_fence(window), code);
        OK(towline_window_free(window));
        IS(towline_window_free(window), TOWLINE_ERR_HANDLE);
        IS(towline_window_size(window, rank, &word), TOWLINE_ERR_HANDLE);
    }
}

static void making(towline_comm_t comm) {
    towline_window_t window, many[20];
    char memory[16];
    const towline_comm_t none = TOWLINE_NULL(towline_comm_t);
    IS(towline_window_allocate(comm, 16, ALL, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_allocate(comm, 16, 16, &window), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_allocate(comm, 16, 0x10000, &window), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_allocate(none, 16, ALL, &window), TOWLINE_ERR_HANDLE);
    IS(towline_window_create(comm, NULL, 16, ALL, &window), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_create(comm, memory, SIZE_MAX, ALL, &window), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_create(comm, memory, 16, ALL, NULL), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_create(comm, memory, 16, ~0u, &window), TOWLINE_ERR_ARGUMENT);
    IS(towline_window_create(none, memory, 16, ALL, &window), TOWLINE_ERR_HANDLE);
    /* The context may have 9 communicators, and each window has one. */
    int made = 0;
    while (towline_window_create(comm, memory, 16, ALL, &many[made]) == TOWLINE_SUCCESS) made++;
    TRUE(made >= 3 && made < 9);
    IS(towline_window_create(comm, memory, 16, ALL, &window), TOWLINE_ERR_BUSY);
    while (made > 0) OK(towline_window_free(many[--made]));
    /* Nothing at all. */
    OK(towline_window_create(comm, NULL, 0, ALL, &window));
    IS(towline_window_put(window, memory, 1, 0, 0), TOWLINE_ERR_RANGE);
    OK(towline_window_free(window));
}

/* Memory of the program, at an address that is aligned for nothing. */
static void unaligned(towline_comm_t comm, uint32_t rank) {
    static uint64_t memory[4];
    uint64_t word = 1;
    void *base;
    towline_window_t window;
    OK(towline_window_create(comm, (char *)memory + 1, 24, ALL, &window));
    OK(towline_window_base(window, &base, &word));
    TRUE(base == (char *)memory + 1 && word == 24);
    IS(towline_window_fetch_op(window, TOWLINE_ADD, TOWLINE_UINT64, &word, &word, rank, 0), TOWLINE_ERR_RANGE);
    IS(towline_window_accumulate(window, TOWLINE_ADD, TOWLINE_UINT32, &word, 1, rank, 4), TOWLINE_ERR_RANGE);
    OK(towline_window_put(window, "abc", 3, rank, 2));
    OK(towline_window_free(window));
    TRUE(!memcmp((char *)memory, "\0\0\0abc", 6));
}

static uint64_t counted(towline_context_t context, const char *name) {
    uint64_t value;
    OK(towline_counter(context, name, &value));
    return value;
}

static void one_context(int level) {
    const char *settings[] = {"communicators=9", NULL};
    static uint64_t memory[8];
    towline_context_t context;
    towline_comm_t world, copy;
    towline_window_t allocated, created;
    uint32_t rank;
    uint64_t bytes, word = 7;
    void *base;
    OK(towline_init(level, settings, &context));
    OK(towline_world(context, &world));
    OK(towline_comm_rank(world, &rank));
    making(world);
    rights(world, rank);
    unaligned(world, rank);
    memset(memory, 0, sizeof memory);
    OK(towline_comm_dup(world, &copy));
    OK(towline_window_allocate(copy, 64, ALL, &allocated));
    OK(towline_window_create(copy, memory, 64, ALL, &created));
    OK(towline_comm_free(copy)); /* the windows have their own */
    words(allocated, rank);
    words(created, rank);
    wrong_calls(allocated, rank, 1, 64);
    wrong_calls(created, rank, 1, 64);
    OK(towline_window_size(created, rank, &bytes));
    TRUE(bytes == 64);
    const uint64_t puts = counted(context, "program.puts"), put = counted(context, "program.bytes_put");
    OK(towline_window_put(allocated, &word, sizeof word, rank, 56));
    OK(towline_window_put(created, &word, sizeof word, rank, 56));
    TRUE(counted(context, "program.puts") == puts + 2 && counted(context, "program.bytes_put") == put + 16);
    OK(towline_window_fence(allocated));
    OK(towline_window_fence(created));
    OK(towline_window_base(allocated, &base, &bytes));
    TRUE(bytes == 64 && memory[7] == 7 && ((uint64_t *)base)[7] == 7);
    /* Windows end with their context. */
    OK(towline_finish(context));
    IS(towline_window_put(allocated, &word, 1, rank, 0), TOWLINE_ERR_HANDLE);
    IS(towline_window_free(created), TOWLINE_ERR_HANDLE);
    TRUE(memory[7] == 7);
}

/* Two ranks with parts of different lengths and kinds. */
static void two_ranks(void) {
    towline_context_t context;
    towline_comm_t world;
    towline_window_t window;
    uint32_t rank, size;
    static uint64_t memory[1 << 18];
    uint64_t bytes[2], one = 1, old;
    OK(towline_init(TOWLINE_THREAD_SERIALIZED, NULL, &context));
    OK(towline_world(context, &world));
    OK(towline_comm_rank(world, &rank));
    OK(towline_comm_size(world, &size));
    TRUE(size == 2);
    const uint32_t other = 1 - rank;
    for (int turn = 0; turn < 2; turn++) {
        memset(memory, 0, sizeof memory);
        if (rank == (uint32_t)turn) {
            OK(towline_window_allocate(world, 4096, ALL, &window));
        } else {
            OK(towline_window_create(world, memory, sizeof memory, ALL, &window));
        }
        OK(towline_window_size(window, (uint32_t)turn, &bytes[0]));
        OK(towline_window_size(window, 1 - (uint32_t)turn, &bytes[1]));
        TRUE(bytes[0] == 4096 && bytes[1] == sizeof memory);
        const uint64_t theirs = rank == (uint32_t)turn ? sizeof memory : 4096;
        void *base;
        OK(towline_window_base(window, &base, NULL));
        const unsigned char *mine = (const unsigned char *)base;
        /* A counter of both, and a long put, from another place for each rank. */
        for (int i = 0; i < 1000; i++) OK(towline_window_accumulate(window, TOWLINE_ADD, TOWLINE_UINT64, &one, 1, 0, 0));
        unsigned char *data = malloc(theirs), *back = malloc(theirs);
        for (uint64_t i = 0; i < theirs; i++) data[i] = (unsigned char)(i * 7 + rank);
        OK(towline_window_put(window, data, theirs - 8, other, 8));
        OK(towline_window_fence(window));
        OK(towline_window_fetch_op(window, TOWLINE_ADD, TOWLINE_UINT64, &one, &old, 0, 0));
        TRUE(old >= 2000 && old < 2002);
        OK(towline_window_get(window, back, theirs - 8, other, 8));
        TRUE(!memcmp(back, data, theirs - 8));
        OK(towline_window_fence(window));
        const uint64_t length = rank == (uint32_t)turn ? 4096 : sizeof memory;
        for (uint64_t i = 8; i < length; i++) TRUE(mine[i] == (unsigned char)((i - 8) * 7 + other));
        IS(towline_window_put(window, data, 1, other, theirs), TOWLINE_ERR_RANGE);
        OK(towline_window_fence(window));
        if (rank == 0) words(window, other);
        OK(towline_window_fence(window));
        OK(towline_window_free(window));
        free(data), free(back);
    }
    /* Each rank chooses the rights to its own part. */
    OK(towline_window_allocate(world, 64, rank == 0 ? TOWLINE_ACCESS_READ : ALL, &window));
    OK(towline_window_put(window, &one, sizeof one, other, 0));
    IS(towline_window_flush(window, other), rank == 1 ? TOWLINE_ERR_DENIED : TOWLINE_SUCCESS);
    OK(towline_window_get(window, &old, sizeof old, other, 0));
    TRUE(old == other);
    OK(towline_window_fence(window));
    OK(towline_window_free(window));
    /* A rank without memory for its part: no rank makes the window. */
    const int code = rank == 0 ? TOWLINE_ERR_NO_MEMORY : TOWLINE_ERR_OTHER_RANK;
    IS(towline_window_allocate(world, rank == 0 ? (size_t)1 << 62 : 8, ALL, &window), code);
    OK(towline_finish(context));
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "two")) {
        two_ranks();
    } else {
        for (int level = TOWLINE_THREAD_SINGLE; level <= TOWLINE_THREAD_MULTIPLE; level++) one_context(level);
    }
    puts("done");
    return 0;
}
