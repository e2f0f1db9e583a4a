/* The C interface of Towline: tagged messages between the processes of a parallel job.
 *
 * This file is generated from the crate `towline-c`. Licensed under MIT or Apache-2.0, as you like.
 *
 * A program joins its job with towline_init, gets the communicator of all ranks with towline_world, sends and receives, and ends with
 * towline_finish. It is started with `towline run -n 4 ./program`, by mpirun or another PMIx launcher, or alone as
 * a job of one rank.
 *
 * Results     Functions return 0, or a negative code. towline_error_text has the text for the calling thread: what happened, whose
 *             fault it is, and what to do. Results are stored through pointers, and only if the function succeeds, unless it says
 *             otherwise.
 * Handles     Handles are small structures that are passed by value. All bits 0 stand for no object. A handle that is stale, or that
 *             never was one, is refused with TOWLINE_ERR_HANDLE, whatever its bits are.
 * Undefined   The library cannot check addresses and lengths of memory. A null pointer where an object is needed is refused with
 *             TOWLINE_ERR_ARGUMENT. Any other wrong address, a length beyond the memory, memory that changes while it is sent, and a
 *             handle that one thread frees while another one uses it, are undefined behaviour, as in any C library.
 * Threads     The thread level of a context says how many threads may use it: see towline_thread_level_t. Functions without a context
 *             are thread-safe. A forked child cannot use the contexts of its parent (TOWLINE_ERR_FORKED).
 * Units       Lengths and displacements are in bytes, unless they count items of a layout.
 * Versions    Each comment names the ABI version that has the function first: see towline_abi_version.
 */

#ifndef TOWLINE_H
#define TOWLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** No object. */
#ifdef __cplusplus
#define TOWLINE_NULL(type) (type{})
#else
#define TOWLINE_NULL(type) ((type){0})
#endif
/** The layout of single bytes: a count of items is a count of bytes. */
#define TOWLINE_BYTES TOWLINE_NULL(towline_layout_t)
/** A request that is complete. */
#define TOWLINE_REQUEST_NULL TOWLINE_NULL(towline_request_t)
/** The index if no request of a list is in progress: see `towline_wait_any`. */
#define TOWLINE_NO_INDEX SIZE_MAX

/**
 * Bytes of the longest key of registered memory: that of Open MPI's `btl.h`.
 */
#define TOWLINE_BTL_KEY_MAX 256

/**
 * Rights of registered memory, with the values of `MCA_BTL_REG_FLAG_` of Open MPI's `btl.h`: a local get may write to it.
 */
#define TOWLINE_BTL_LOCAL_WRITE 1

/**
 * Peers may get from the memory.
 */
#define TOWLINE_BTL_REMOTE_READ 2

/**
 * Peers may put into the memory.
 */
#define TOWLINE_BTL_REMOTE_WRITE 4

/**
 * Peers may use atomics on the memory.
 */
#define TOWLINE_BTL_REMOTE_ATOMIC 8

/**
 * All rights.
 */
#define TOWLINE_BTL_ACCESS_ANY 15

/**
 * The color of a rank that wants no communicator: see `towline_comm_split`.
 */
#define TOWLINE_NO_COLOR UINT32_MAX

/**
 * What a function of an exchange returns if its time has passed.
 */
#define TOWLINE_EXCHANGE_TIMEOUT 1

/**
 * Bytes of the secret of a job.
 */
#define TOWLINE_KEY_BYTES 32

/**
 * The source of a receive or probe that takes messages of any rank.
 */
#define TOWLINE_ANY_SOURCE UINT32_MAX

/**
 * The tag of a receive or probe that takes messages with any tag.
 */
#define TOWLINE_ANY_TAG UINT32_MAX

/**
 * The largest tag of a message.
 */
#define TOWLINE_TAG_MAX 2147483647

/**
 * The major ABI version of this header. It changes if a program that was built before must be built again. While it is 0, a
 * change of the minor version may have the same effect.
 */
#define TOWLINE_ABI_MAJOR 0

/**
 * The minor ABI version of this header. It grows if functions, constants or codes are added.
 */
#define TOWLINE_ABI_MINOR 1

/**
 * Other ranks may get from this rank's part of a window.
 */
#define TOWLINE_ACCESS_READ 2

/**
 * Other ranks may put into this rank's part of a window.
 */
#define TOWLINE_ACCESS_WRITE 4

/**
 * Other ranks may use atomic operations on this rank's part of a window.
 */
#define TOWLINE_ACCESS_ATOMIC 8

/**
 * All rights.
 */
#define TOWLINE_ACCESS_ALL 15

/**
 * The rank of a process in a communicator that it is not a member of: see `towline_comm_create`.
 */
#define TOWLINE_NO_RANK UINT32_MAX

/**
 * Who has to act on an error.
 *
 * Since ABI version 0.1.
 */
typedef enum towline_fault_t {
    /**
     * There was no error.
     */
    TOWLINE_FAULT_NONE = 0,
    /**
     * The program that called the function.
     */
    TOWLINE_FAULT_CALLER = 1,
    /**
     * Another rank.
     */
    TOWLINE_FAULT_PEER = 2,
    /**
     * The system, or whoever chose the settings: memory, descriptors, limits.
     */
    TOWLINE_FAULT_RESOURCE = 3,
    /**
     * The library.
     */
    TOWLINE_FAULT_LIBRARY = 4,
} towline_fault_t;

/**
 * What a function returns: 0 for success, and a negative code otherwise. Later versions may add codes, so a program must treat a
 * code that it does not know as a failure.
 *
 * Since ABI version 0.1.
 */
typedef enum towline_code_t {
    /**
     * The function has done what it says.
     */
    TOWLINE_SUCCESS = 0,
    /**
     * An argument is impossible: a null pointer, a count, a value that is not one of those listed.
     */
    TOWLINE_ERR_ARGUMENT = -1,
    /**
     * A handle stands for nothing: it was freed, its request was completed, or it never was one.
     */
    TOWLINE_ERR_HANDLE = -2,
    /**
     * A context of one thread was used by another thread.
     */
    TOWLINE_ERR_THREAD = -3,
    /**
     * The communicator has no such rank.
     */
    TOWLINE_ERR_RANK = -4,
    /**
     * The tag is above `TOWLINE_TAG_MAX`.
     */
    TOWLINE_ERR_TAG = -5,
    /**
     * The message was longer than the memory to receive it. The part that fits was delivered.
     */
    TOWLINE_ERR_TRUNCATED = -6,
    /**
     * As many operations, communicators or contexts are in use as the settings allow.
     */
    TOWLINE_ERR_BUSY = -7,
    /**
     * There is not enough memory.
     */
    TOWLINE_ERR_NO_MEMORY = -8,
    /**
     * A rank was lost: it ended without finishing, or no connection to it is left.
     */
    TOWLINE_ERR_PEER_FAILED = -9,
    /**
     * A rank has finished, and can neither receive nor send any more.
     */
    TOWLINE_ERR_PEER_FINISHED = -10,
    /**
     * A rank was restarted since the communicator was made.
     */
    TOWLINE_ERR_RESTARTED = -11,
    /**
     * The operation was cancelled.
     */
    TOWLINE_ERR_CANCELLED = -12,
    /**
     * A ready send found no posted receive.
     */
    TOWLINE_ERR_NOT_READY = -13,
    /**
     * The receiver freed its communicator before it received the message.
     */
    TOWLINE_ERR_NO_COMMUNICATOR = -14,
    /**
     * The context has ended, or is another one.
     */
    TOWLINE_ERR_FINISHED = -15,
    /**
     * The context belongs to the process from which this one was forked.
     */
    TOWLINE_ERR_FORKED = -16,
    /**
     * A layout is impossible, or nothing can be received into it.
     */
    TOWLINE_ERR_LAYOUT = -17,
    /**
     * A setting is unknown, or has an impossible value.
     */
    TOWLINE_ERR_SETTING = -18,
    /**
     * The job cannot be joined or ended as it should: the text says why.
     */
    TOWLINE_ERR_JOB = -19,
    /**
     * Another rank could not take part in an operation of all ranks.
     */
    TOWLINE_ERR_OTHER_RANK = -20,
    /**
     * The library has a fault. Please report the text.
     */
    TOWLINE_ERR_INTERNAL = -21,
    /**
     * Any other failure: the text says which.
     */
    TOWLINE_ERR_OTHER = -22,
    /**
     * A one-sided operation reaches beyond a rank's part of a window, or a word is not at a multiple of its size.
     */
    TOWLINE_ERR_RANGE = -23,
    /**
     * A rank does not allow the operation on its part of a window, or has freed that part.
     */
    TOWLINE_ERR_DENIED = -24,
    /**
     * There is no such operation, or not with this length or alignment.
     */
    TOWLINE_ERR_NOT_AVAILABLE = -25,
} towline_code_t;

/**
 * How many threads use a context, as MPI names the levels.
 *
 * Since ABI version 0.1.
 */
typedef enum towline_thread_level_t {
    /**
     * The process has one thread.
     */
    TOWLINE_THREAD_SINGLE = 0,
    /**
     * Only the thread that makes the context uses it. Another thread gets `TOWLINE_ERR_THREAD`.
     */
    TOWLINE_THREAD_FUNNELED = 1,
    /**
     * Several threads use it, one at a time.
     */
    TOWLINE_THREAD_SERIALIZED = 2,
    /**
     * Any number of threads use it at once.
     */
    TOWLINE_THREAD_MULTIPLE = 3,
} towline_thread_level_t;

/**
 * When a send is complete.
 *
 * Since ABI version 0.1.
 */
typedef enum towline_send_mode_t {
    /**
     * When the memory may be changed. A short message may have been copied, and a long one has been received.
     */
    TOWLINE_SEND_STANDARD = 0,
    /**
     * When a receive has matched the message: `MPI_Ssend`.
     */
    TOWLINE_SEND_SYNCHRONOUS = 1,
    /**
     * As synchronous, and the receive must be posted already: `MPI_Rsend`. Otherwise the send fails with `TOWLINE_ERR_NOT_READY`.
     */
    TOWLINE_SEND_READY = 2,
    /**
     * When the message is with the device, and needs no further progress of this process.
     */
    TOWLINE_SEND_COMPLETE = 3,
} towline_send_mode_t;

/**
 * The form of a report.
 *
 * Since ABI version 0.1.
 */
typedef enum towline_report_form_t {
    /**
     * Lines for people.
     */
    TOWLINE_REPORT_TEXT = 0,
    /**
     * One JSON object.
     */
    TOWLINE_REPORT_JSON = 1,
} towline_report_form_t;

/**
 * The words of atomic operations, in the byte order of the processor.
 *
 * Since ABI version 0.1.
 */
typedef enum towline_word_type_t {
    /**
     * `uint32_t`.
     */
    TOWLINE_UINT32 = 0,
    /**
     * `int32_t`.
     */
    TOWLINE_INT32 = 1,
    /**
     * `uint64_t`.
     */
    TOWLINE_UINT64 = 2,
    /**
     * `int64_t`.
     */
    TOWLINE_INT64 = 3,
    /**
     * `float`.
     */
    TOWLINE_FLOAT = 4,
    /**
     * `double`.
     */
    TOWLINE_DOUBLE = 5,
} towline_word_type_t;

/**
 * How a word is combined with an operand.
 *
 * Since ABI version 0.1.
 */
typedef enum towline_word_op_t {
    /**
     * The sum of both. Integers wrap.
     */
    TOWLINE_ADD = 0,
    /**
     * The bits that are set in both; for integers.
     */
    TOWLINE_AND = 1,
    /**
     * The bits that are set in either; for integers.
     */
    TOWLINE_OR = 2,
    /**
     * The bits that are set in exactly one; for integers.
     */
    TOWLINE_XOR = 3,
    /**
     * 1 if neither is 0, else 0.
     */
    TOWLINE_LOGICAL_AND = 4,
    /**
     * 1 if at least one is not 0, else 0.
     */
    TOWLINE_LOGICAL_OR = 5,
    /**
     * 1 if exactly one is not 0, else 0.
     */
    TOWLINE_LOGICAL_XOR = 6,
    /**
     * The operand.
     */
    TOWLINE_SWAP = 7,
    /**
     * The lesser one; for signed integers and floating-point numbers. If one of these is not a number (NaN), the other one.
     */
    TOWLINE_MIN = 8,
    /**
     * The greater one, as for `TOWLINE_MIN`.
     */
    TOWLINE_MAX = 9,
} towline_word_op_t;

/**
 * A window: memory of each rank of a communicator that all of them access. 0 stands for none.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_window_t {
    /**
     * For the library alone.
     */
    uint64_t bits;
} towline_window_t;

/**
 * A module of the BTL face: the transport of one rail, with its peers, descriptors and memory. 0 stands for none.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_t {
    /**
     * For the library alone.
     */
    uint64_t bits;
} towline_btl_t;

/**
 * A peer of a module. 0 stands for none.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_endpoint_t {
    /**
     * For the library alone.
     */
    uint64_t bits;
    /**
     * The module.
     */
    struct towline_btl_t btl;
} towline_btl_endpoint_t;

/**
 * A frame that has arrived. It and its bytes can be used only until the function that gets it returns. If the library was built
 * with debug assertions, the bytes are 0xDB afterwards, so that a program that keeps their address is found out.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_received_t {
    /**
     * The sender. `bits` are 0 if the sender is not a peer of the module, for example because it was removed.
     */
    struct towline_btl_endpoint_t endpoint;
    /**
     * What the program has given for the sender with `towline_btl_add_peer`, or null.
     */
    void *peer;
    /**
     * The bytes of the frame, header and payload, in one piece.
     */
    const void *data;
    /**
     * How many.
     */
    size_t length;
    /**
     * The tag of the frame.
     */
    uint8_t tag;
} towline_btl_received_t;

/**
 * Gets each frame of a tag. It may use the module: send, allocate, free, begin one-sided operations, add peers. Progress within it
 * does nothing.
 */
typedef void (*towline_btl_receive_fn)(const struct towline_btl_received_t *received, void *state);

/**
 * A peer that was lost.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_loss_t {
    /**
     * The number of its process.
     */
    uint32_t number;
    /**
     * 1: frames may be lost, so that the job cannot go on. 2: another module may be used for the peer.
     */
    uint32_t flags;
    /**
     * Whether the peer has ended the connection itself, as a process does that ends normally.
     */
    bool closed;
    /**
     * The reason, which ends with 0. It lasts until the function returns.
     */
    const char *text;
} towline_btl_loss_t;

/**
 * Is called once for each peer that is lost. It may use the module.
 */
typedef void (*towline_btl_error_fn)(const struct towline_btl_loss_t *loss, void *state);

/**
 * What a module can do, and its limits: the public part of `mca_btl_base_module_t` in Open MPI. It never changes.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_attributes_t {
    /**
     * The name of the transport, which ends with 0: "sm", "tcp", "udp", "verbs", "dpu-frames". It lives as long as the process.
     */
    char name[16];
    /**
     * Bits, with the values of `MCA_BTL_FLAGS_` of Open MPI's `btl.h` 3.3.0. `PUT_AM`, `GET_AM` and `ATOMIC_AM_FOP` stand for
     * operations that the module does by active messages; the calls are the same.
     */
    uint32_t flags;
    /**
     * Which atomics there are, with the values of `MCA_BTL_ATOMIC_SUPPORTS_`.
     */
    uint32_t atomics;
    /**
     * Of the modules that reach a peer, those with the highest value are used for messages.
     */
    uint32_t exclusivity;
    /**
     * Half a round trip, in nanoseconds: to choose among modules.
     */
    uint32_t latency;
    /**
     * In megabytes per second: to divide long messages among modules.
     */
    uint32_t bandwidth;
    /**
     * The most bytes of a frame for `towline_btl_sendi`, and of a first frame that is quick.
     */
    size_t eager_limit;
    /**
     * The most bytes of data in the first frame of a rendezvous.
     */
    size_t rendezvous_eager_limit;
    /**
     * The most bytes of a frame.
     */
    size_t max_send_size;
    /**
     * The most bytes of a put; `SIZE_MAX` for any number.
     */
    size_t put_limit;
    /**
     * Addresses and lengths of a put are multiples of this; 1 for any.
     */
    size_t put_alignment;
    /**
     * Puts of at least this many bytes need registered local memory; `SIZE_MAX`: none does.
     */
    size_t put_registration_threshold;
    /**
     * The same for gets.
     */
    size_t get_limit;
    /**
     * The same for gets.
     */
    size_t get_alignment;
    /**
     * The same for gets.
     */
    size_t get_registration_threshold;
    /**
     * Bytes of the key of registered memory, at most 256.
     */
    size_t key_bytes;
} towline_btl_attributes_t;

/**
 * A descriptor of a module: the bytes of a frame, in the module's memory and in that of the program. 0 stands for none.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_descriptor_t {
    /**
     * For the library alone.
     */
    uint64_t bits;
    /**
     * The module.
     */
    struct towline_btl_t btl;
} towline_btl_descriptor_t;

/**
 * A part of a frame: bytes in memory.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_segment_t {
    /**
     * Where they are.
     */
    void *base;
    /**
     * How many.
     */
    size_t length;
} towline_btl_segment_t;

/**
 * Counts of a module since it was opened.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_counters_t {
    /**
     * Frames that were accepted for sending.
     */
    uint64_t sent;
    /**
     * Their bytes.
     */
    uint64_t bytes_sent;
    /**
     * Frames that a function of the program got.
     */
    uint64_t received;
    /**
     * Sends and one-sided operations that are complete.
     */
    uint64_t completed;
    /**
     * Frames that were dropped because their tag has no function.
     */
    uint64_t unregistered;
    /**
     * Frames that were dropped because they were too long.
     */
    uint64_t oversize;
    /**
     * Puts that were begun.
     */
    uint64_t puts;
    /**
     * Gets that were begun.
     */
    uint64_t gets;
    /**
     * Atomics that were begun.
     */
    uint64_t atomics;
} towline_btl_counters_t;

/**
 * Memory of the program that was registered with a module. 0 stands for none.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_registration_t {
    /**
     * For the library alone.
     */
    uint64_t bits;
    /**
     * The module.
     */
    struct towline_btl_t btl;
} towline_btl_registration_t;

/**
 * Asks a runtime to remove files of this process when it is gone, in case that it is killed. The files may be made after the call,
 * or never, and may be removed before. The function is called by threads that open transports or send; it must not wait, must not
 * call functions of this library, and must not throw C++ exceptions.
 *
 * @param state  That of the place.
 * @param paths  The absolute paths of the files, until the function returns.
 * @param count  How many.
 *
 * Since ABI version 0.1.
 */
typedef void (*towline_clean_up_fn)(void *state, const char *const *paths, size_t count);

/**
 * The place of a process in a runtime that exchanges cards by its own means. `towline_place_default` sets it.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_place_t {
    /**
     * The number of the job. All processes that may become peers have the same. Others on the host should have another one.
     */
    uint64_t job;
    /**
     * The secret of the job, the same in all its processes. Processes that do not know it cannot connect.
     */
    uint8_t key[TOWLINE_KEY_BYTES];
    /**
     * The number of this process. No other running process of the job has it.
     */
    uint32_t number;
    /**
     * How many numbers there are, the same in all processes: 1 to 1,048,576.
     */
    uint32_t numbers;
    /**
     * How many peers this process may have at a time, itself included. Memory for unexpected messages is divided among them.
     */
    uint32_t peers;
    /**
     * How many processes of the job are on this host, this one included. They share its memory and its processors.
     */
    uint32_t local;
    /**
     * How many of them come before this one in an order on which they agree.
     */
    uint32_t local_rank;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * Asks the runtime to remove files, if it can. If null, a killed process leaves files in shared memory, and the next program of
     * the same user that opens shared memory over Towline removes them.
     */
    towline_clean_up_fn clean_up;
    /**
     * What is passed to `clean_up`. It stays valid until the transports are closed.
     */
    void *clean_up_state;
} towline_place_t;

/**
 * A one-sided operation that is complete: it is done at the target, and local memory is the program's again.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_done_t {
    /**
     * The peer. The handle is stale if the peer was removed.
     */
    struct towline_btl_endpoint_t endpoint;
    /**
     * What the program has given for the peer, or null.
     */
    void *peer;
    /**
     * The old value of the word, for an atomic. A word of 32 bits is in the low half.
     */
    uint64_t value;
    /**
     * 0, or why it may not be done: `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_CANCELLED` if the peer was removed, `TOWLINE_ERR_DENIED` if
     * the target does not allow it.
     */
    int status;
} towline_btl_done_t;

/**
 * Is called for a one-sided operation that is complete. It may use the module.
 */
typedef void (*towline_btl_done_fn)(const struct towline_btl_done_t *done, void *state);

/**
 * A send that is complete: its descriptor can be used again, and the bytes leave without further calls.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_btl_sent_t {
    /**
     * The descriptor.
     */
    struct towline_btl_descriptor_t descriptor;
    /**
     * The peer. The handle is stale if the peer was removed.
     */
    struct towline_btl_endpoint_t endpoint;
    /**
     * What the program has given for the peer, or null.
     */
    void *peer;
    /**
     * 0, or why the frame may not arrive: `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_CANCELLED` if the peer was removed, or
     * `TOWLINE_ERR_OTHER`.
     */
    int status;
    /**
     * For later descriptors whose frames shall arrive after this one.
     */
    uint8_t order;
} towline_btl_sent_t;

/**
 * Is called for a send that is complete. It may use the module.
 */
typedef void (*towline_btl_sent_fn)(const struct towline_btl_sent_t *sent, void *state);

/**
 * A communicator: a group of ranks, numbered from 0. 0 stands for none.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_comm_t {
    /**
     * For the library alone.
     */
    uint64_t bits;
} towline_comm_t;

/**
 * A context: the engine and the transports of this process, and its place in the job. 0 stands for none.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_context_t {
    /**
     * For the library alone.
     */
    uint64_t bits;
} towline_context_t;

/**
 * Takes the bytes of one rank, in a call of `towline_gather_fn`.
 *
 * @param gathered  What the library passed to the call.
 * @param rank      The rank that gave the bytes.
 * @param bytes     The bytes, which are copied. May be null if `length` is 0.
 * @param length    How many.
 *
 * To be called by the thread that the library called. Since ABI version 0.1.
 */
typedef void (*towline_deliver_fn)(void *gathered, uint32_t rank, const void *bytes, size_t length);

/**
 * Gives the bytes of this rank to all ranks, and delivers those of all ranks, itself included. All ranks call it equally often, and
 * each call delivers the bytes of the same call of the others.
 *
 * @param state       That of the exchange.
 * @param bytes       The bytes of this rank, until the function returns. Up to 1 MiB, or none.
 * @param length      How many.
 * @param timeout_ms  How long to wait for other ranks, in milliseconds.
 * @param deliver     To be called once for each rank, in any order.
 * @param gathered    To be passed to `deliver`.
 * @return            0, `TOWLINE_EXCHANGE_TIMEOUT`, or any other number, which the text of the error then has.
 *
 * Since ABI version 0.1.
 */
typedef int (*towline_gather_fn)(void *state,
                                 const void *bytes,
                                 size_t length,
                                 uint32_t timeout_ms,
                                 towline_deliver_fn deliver,
                                 void *gathered);

/**
 * Waits until all ranks have called this. It counts as one of their common calls, as `towline_gather_fn` does.
 *
 * @param state       That of the exchange.
 * @param timeout_ms  How long to wait for other ranks, in milliseconds.
 * @return            As `towline_gather_fn`.
 *
 * Since ABI version 0.1.
 */
typedef int (*towline_fence_fn)(void *state, uint32_t timeout_ms);

/**
 * Shows a text to the user, and ends all ranks with an exit status. It may return, since the caller then ends itself.
 *
 * @param state   That of the exchange.
 * @param status  The exit status of the job.
 * @param why     A text that ends with 0, until the function returns.
 *
 * Since ABI version 0.1.
 */
typedef void (*towline_abort_fn)(void *state, int status, const char *why);

/**
 * Says which rank has failed, without waiting.
 *
 * @param state  That of the exchange.
 * @return       A rank that was not returned before, or -1 if there is none.
 *
 * Since ABI version 0.1.
 */
typedef int64_t (*towline_lost_fn)(void *state);

/**
 * What a rank's own runtime does for its job, in place of a launcher of Towline: see `towline_init_with`.
 *
 * The exchange is trusted: the secret of the job goes through it. The library calls the functions one after the other, but from any
 * thread that uses the context. They must not call functions of this library, and must not throw C++ exceptions. After one of them
 * has failed, only `abort` is called.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_exchange_t {
    /**
     * What is passed to the functions. It stays valid until the context has ended.
     */
    void *state;
    /**
     * The rank of this process.
     */
    uint32_t rank;
    /**
     * The number of ranks: 1 to 1,048,576.
     */
    uint32_t size;
    /**
     * The ranks of this host, this one included, or null if they are not known. Copied.
     */
    const uint32_t *local_ranks;
    /**
     * How many they are.
     */
    size_t local_count;
    /**
     * Gathers bytes of all ranks. Not null.
     */
    towline_gather_fn gather;
    /**
     * Waits for all ranks. If it is null, ranks gather nothing instead.
     */
    towline_fence_fn fence;
    /**
     * Ends all ranks. Not null.
     */
    towline_abort_fn abort;
    /**
     * Says which ranks have failed. If it is null, a rank learns of the death only of those that it has a connection to.
     */
    towline_lost_fn lost;
} towline_exchange_t;

/**
 * A layout. `TOWLINE_BYTES`, which is 0, stands for single bytes, so that a count of items is a count of bytes.
 *
 * Layouts belong to the process, and not to a context.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_layout_t {
    /**
     * For the library alone.
     */
    uint64_t bits;
} towline_layout_t;

/**
 * Copies a part of a message from memory of the program to memory of the library.
 *
 * @param state   What the layout was made with.
 * @param buffer  What the operation was called with, as is `count`.
 * @param offset  Where the part begins in the packed message, in bytes.
 * @param to      Gets the part.
 * @param bytes   The length of the part. It lies within the message.
 * @return        0 for success. Any other number makes the operation fail once it is complete.
 *
 * It is called by any thread that uses the context, also by a progress thread, while the library holds a lock: it must not call
 * the library, and must return (no `longjmp`, no exception). Since ABI version 0.1.
 */
typedef int (*towline_pack_fn)(void *state, const void *buffer, size_t count, uint64_t offset, void *to, size_t bytes);

/**
 * Copies a part of a message from memory of the library to memory of the program. Parts may come in any order. Otherwise as
 * `towline_pack_fn`. Since ABI version 0.1.
 */
typedef int (*towline_unpack_fn)(void *state, void *buffer, size_t count, uint64_t offset, const void *from, size_t bytes);

/**
 * What is known of a message that was received, or found by a probe.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_status_t {
    /**
     * The rank that sent it. After `TOWLINE_ERR_PEER_FAILED` and `TOWLINE_ERR_PEER_FINISHED`, the rank that was lost.
     */
    uint32_t source;
    /**
     * Its tag.
     */
    uint32_t tag;
    /**
     * How many bytes were delivered. For a probe: the length of the message.
     */
    uint64_t bytes;
    /**
     * The code of the operation. `towline_wait_all` sets it for each operation; the other functions return it, too.
     */
    int32_t error;
    /**
     * 0.
     */
    uint32_t reserved;
} towline_status_t;

/**
 * A message that a matched probe took: no other receive gets it. 0 stands for none.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_message_t {
    /**
     * For the library alone.
     */
    uint64_t bits;
} towline_message_t;

/**
 * An operation in progress. `TOWLINE_REQUEST_NULL`, all of whose bits are 0, stands for one that is complete.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_request_t {
    /**
     * For the library alone.
     */
    uint64_t bits;
    /**
     * The communicator of the operation.
     */
    struct towline_comm_t comm;
    /**
     * The context of the operation.
     */
    struct towline_context_t context;
} towline_request_t;

/**
 * An operation that has ended: see `towline_poll_queue`.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_completion_t {
    /**
     * The word that the operation was begun with.
     */
    uint64_t user;
    /**
     * The source, the tag and the length of a received message, and the code of the operation in `error`.
     */
    struct towline_status_t status;
} towline_completion_t;

/**
 * A setting. All texts end with 0, and live as long as the process.
 *
 * Since ABI version 0.1.
 */
typedef struct towline_setting_t {
    /**
     * Its name, as in the settings of `towline_init`: `tcp.include`.
     */
    const char *name;
    /**
     * The variable of the environment that overrides it: `TOWLINE_TCP_INCLUDE`.
     */
    const char *variable;
    /**
     * Its default.
     */
    const char *default_value;
    /**
     * The unit of its value, or an empty text.
     */
    const char *unit;
    /**
     * What it does.
     */
    const char *help;
} towline_setting_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Combines words of a rank's part with operands: `MPI_Accumulate`. Each word is changed by one atomic operation; all of them together
 * are not atomic. Complete after the next flush. Atomic operations are atomic with respect to each other, whichever rank begins
 * them, and to nothing else.
 *
 * @param window    The window.
 * @param op        A `towline_word_op_t`.
 * @param word      A `towline_word_type_t`: the type of the words.
 * @param operands  The operands. They may be changed when the function returns. May be null if `count` is 0.
 * @param count     How many words and operands there are.
 * @param rank      The rank whose part it is.
 * @param offset    The place of the first word in the part, in bytes from its beginning.
 * @return          `TOWLINE_ERR_RANGE` if the words reach beyond the part, or if their addresses are not multiples of their size;
 *                  `TOWLINE_ERR_ARGUMENT` if such words have no such operation; otherwise as `towline_window_put`.
 *                  After an error, words before the one that has failed may have been changed.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre The operands are readable, and nothing changes them, until the function returns.
 */
int towline_window_accumulate(struct towline_window_t window,
                              int op,
                              int word,
                              const void *operands,
                              size_t count,
                              uint32_t rank,
                              uint64_t offset);

/**
 * Combines a word of a rank's part with an operand, and returns the old word: `MPI_Fetch_and_op`. It is complete when the function
 * returns. With `TOWLINE_ADD` and an operand of 0 it only reads the word.
 *
 * @param window   The window.
 * @param op       A `towline_word_op_t`.
 * @param word     A `towline_word_type_t`: the type of the word.
 * @param operand  The operand.
 * @param old      Gets the word before the operation. May be the address of the operand.
 * @param rank     The rank whose part it is.
 * @param offset   The place of the word in the part, in bytes from its beginning.
 * @return         As `towline_window_accumulate`; `TOWLINE_ERR_DENIED` if the rank does not allow it.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `operand` is the address of such a word, and `old` is writable for one.
 */
int towline_window_fetch_op(struct towline_window_t window,
                            int op,
                            int word,
                            const void *operand,
                            void *old,
                            uint32_t rank,
                            uint64_t offset);

/**
 * Changes a word of a rank's part if it is as expected, and returns the old word: `MPI_Compare_and_swap`. It is complete when the
 * function returns.
 *
 * @param window    The window.
 * @param word      A `towline_word_type_t` of integers.
 * @param expected  The word that is to be there.
 * @param desired   The word that takes its place.
 * @param old       Gets the word before the operation. It was changed if this is the expected one. May be the address of `expected`.
 * @param rank      The rank whose part it is.
 * @param offset    The place of the word in the part, in bytes from its beginning.
 * @return          As `towline_window_fetch_op`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `expected` and `desired` are addresses of such words, and `old` is writable for one.
 */
int towline_window_compare_swap(struct towline_window_t window,
                                int word,
                                const void *expected,
                                const void *desired,
                                void *old,
                                uint32_t rank,
                                uint64_t offset);

/**
 * Sets the function that gets the frames of a tag. Frames of a tag without a function are dropped and counted.
 *
 * @param btl       The module.
 * @param tag       0 to 254. The module itself has tag 16.
 * @param function  The function, or null: the tag has none from then on.
 * @param state     Passed to the function.
 * @return          `TOWLINE_ERR_TAG` for a tag above 254; `TOWLINE_ERR_BUSY` if the tag has a function already, or is that of the
 *                  module; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre Any thread that uses the module may call `function` with `state`, until the tag has no function or the module was closed.
 */
int towline_btl_register(struct towline_btl_t btl, uint8_t tag, towline_btl_receive_fn function, void *state);

/**
 * Sets the function that is called for each lost peer. It replaces an earlier one.
 *
 * @param btl       The module.
 * @param function  The function, or null for none.
 * @param state     Passed to the function.
 * @return          `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre As for `towline_btl_register`.
 */
int towline_btl_on_error(struct towline_btl_t btl, towline_btl_error_fn function, void *state);

/**
 * What a module can do, and its limits.
 *
 * @param btl         The module.
 * @param attributes  Gets them.
 * @return            `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre `attributes` is writable.
 */
int towline_btl_attributes(struct towline_btl_t btl, struct towline_btl_attributes_t *attributes);

/**
 * Allocates a descriptor with memory of the module, which the program fills before it sends the descriptor.
 *
 * @param endpoint    The peer. The descriptor may be sent to others, too.
 * @param order       255, or the order of a complete send to this peer: then the frame arrives after all that was sent to it before.
 * @param flags       Bits, with the values of `MCA_BTL_DES_` of Open MPI's `btl.h`.
 * @param size        How many bytes.
 * @param descriptor  Gets the descriptor. The program frees it with `towline_btl_free`, unless its flags have
 *                    `MCA_BTL_DES_FLAGS_BTL_OWNERSHIP`, with which the module frees it after it was sent.
 * @param segment     Gets its memory, which may have fewer bytes than asked for, and old values.
 * @return            `TOWLINE_ERR_BUSY` if all descriptors are in use: make progress and try again; `TOWLINE_ERR_PEER_FAILED`;
 *                    `TOWLINE_ERR_ARGUMENT` for an order that is not one; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`,
 *                    `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre `descriptor` and `segment` are writable.
 */
int towline_btl_alloc(struct towline_btl_endpoint_t endpoint,
                      uint8_t order,
                      uint32_t flags,
                      size_t size,
                      struct towline_btl_descriptor_t *descriptor,
                      struct towline_btl_segment_t *segment);

/**
 * Allocates a descriptor for a header, which the program writes, followed by data of the program, which the module sends from where it
 * is.
 *
 * @param endpoint    As for `towline_btl_alloc`, as are `order`, `flags`, `descriptor` and the errors.
 * @param reserve     Bytes of the header.
 * @param data        The data.
 * @param size        Its length in bytes. Gets how many of them the descriptor has; for the others, prepare further ones.
 * @param segment     Gets the memory for the header.
 * @return            Also `TOWLINE_ERR_ARGUMENT` if the header leaves no room for data.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre The data is readable, and nothing changes it, until all sends of the descriptor are complete. `size`, `descriptor` and `segment` are
 * writable.
 */
int towline_btl_prepare_src(struct towline_btl_endpoint_t endpoint,
                            uint8_t order,
                            uint32_t flags,
                            size_t reserve,
                            const void *data,
                            size_t *size,
                            struct towline_btl_descriptor_t *descriptor,
                            struct towline_btl_segment_t *segment);

/**
 * Makes a descriptor's memory of the module shorter.
 *
 * @param descriptor  The descriptor, which is not being sent.
 * @param length      The new length in bytes.
 * @return            `TOWLINE_ERR_ARGUMENT` if the memory is shorter already; `TOWLINE_ERR_BUSY` if a send of it is not complete;
 *                    `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 */
int towline_btl_shorten(struct towline_btl_descriptor_t descriptor, size_t length);

/**
 * Frees a descriptor.
 *
 * @param descriptor  The descriptor, whose sends are complete.
 * @return            `TOWLINE_ERR_BUSY` if a send of it is not complete; `TOWLINE_ERR_HANDLE` if it was freed before;
 *                    `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 */
int towline_btl_free(struct towline_btl_descriptor_t descriptor);

/**
 * The counts of a module since it was opened.
 *
 * @param btl       The module.
 * @param counters  Gets them.
 * @return          `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre `counters` is writable.
 */
int towline_btl_counters(struct towline_btl_t btl, struct towline_btl_counters_t *counters);

/**
 * The state of a module, and of a peer, for diagnosis: one JSON object.
 *
 * @param btl       The module.
 * @param endpoint  The peer, or one whose bits are 0 for none.
 * @param verbose   Whether to say more.
 * @param buffer    Gets the text, cut to `size` - 1 bytes, and a 0. May be null if `size` is 0.
 * @param size      Bytes of `buffer`.
 * @param length    Gets the length of the whole text, without the 0. May be null.
 * @return          `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre `buffer` is writable for `size` bytes, and `length` is null or writable.
 */
int towline_btl_dump(struct towline_btl_t btl,
                     struct towline_btl_endpoint_t endpoint,
                     bool verbose,
                     char *buffer,
                     size_t size,
                     size_t *length);

/**
 * Registers memory, so that peers can access it with its key, and so that operations of this side can use it.
 *
 * @param btl           The module.
 * @param only          The peer that may access it, or one whose bits are 0 for all peers, also those that are added later.
 * @param base          The memory.
 * @param length        Its length in bytes.
 * @param access        Rights: `TOWLINE_BTL_LOCAL_WRITE` and so on.
 * @param registration  Gets the handle. The caller ends it with `towline_btl_deregister`; it ends with the module at the latest.
 * @return              `TOWLINE_ERR_BUSY` if too much memory is registered; `TOWLINE_ERR_PEER_FAILED`; `TOWLINE_ERR_ARGUMENT`;
 *                      `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre The memory exists, readable and writable as far as the rights say, until it was deregistered or the module was closed. Peers access
 * it at any time. `registration` is writable.
 */
int towline_btl_register_memory(struct towline_btl_t btl,
                                struct towline_btl_endpoint_t only,
                                void *base,
                                size_t length,
                                uint32_t access,
                                struct towline_btl_registration_t *registration);

/**
 * The key of registered memory, which peers need to access it. The program brings it to them. It names the memory, and is no secret.
 *
 * @param registration  The registration.
 * @param buffer        Gets the key. May be null if `size` is 0.
 * @param size          Bytes of `buffer`.
 * @param length        Gets the length of the key: the module's `key_bytes`.
 * @return              `TOWLINE_ERR_NO_MEMORY` if the buffer is too short: `length` is set then, too. `TOWLINE_ERR_HANDLE`,
 *                      `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre `buffer` is writable for `size` bytes, and `length` is writable.
 */
int towline_btl_key(struct towline_btl_registration_t registration,
                    void *buffer,
                    size_t size,
                    size_t *length);

/**
 * The key of all memory that the owner of a key has registered for this process: the addresses of operations tell where in it. It serves a
 * runtime that knows an address, and not the registration in which it lies.
 *
 * The owner looks for a registration that allows the access, and does so for each part of a long operation. So an operation is denied
 * (`TOWLINE_ERR_DENIED`) where `TOWLINE_ERR_RANGE` would be returned with the key of the memory, and a part of it may have been done then.
 * Such operations are slower, need progress of the owner, and do not reach memory of an accelerator.
 *
 * @param key      The key of any memory of the owner.
 * @param length   Its length in bytes, which is that of the other key, too.
 * @param address  The address in the owner's process for which the other key is meant.
 * @param all      Gets the other key. It may be `key` itself.
 * @return         `TOWLINE_ERR_ARGUMENT` if the bytes are no key; `TOWLINE_ERR_RANGE` if the address lies in the memory of the key: then
 *                 that is the key for it.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre `key` is readable, and `all` is writable, for `length` bytes.
 */
int towline_btl_key_by_address(const void *key,
                               size_t length,
                               uint64_t address,
                               void *all);

/**
 * Ends a registration. Operations of peers on the memory are denied from then on.
 *
 * @param registration  The registration.
 * @return              `TOWLINE_ERR_BUSY` if an operation of this side uses it: wait for its end. `TOWLINE_ERR_HANDLE`,
 *                      `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 */
int towline_btl_deregister(struct towline_btl_registration_t registration);

/**
 * Opens the transports of this process for a runtime that does its own matching: one module for each rail, in the order sm, tcp, udp,
 * verbs, dpu-frames. Several links of a transport (the setting `links`) are several rails. No launcher and no other process is needed, and
 * nothing waits.
 *
 * The runtime carries the card of each module (`towline_btl_card`) to the module of the same rail in other processes, which add it
 * (`towline_btl_add_peer`). Both ends must add each other; a frame to a process that has not done so waits. There is no progress
 * thread: the runtime calls `towline_btl_progress`.
 *
 * @param threads   A `towline_thread_level_t`. With several threads, each call for a module takes its lock.
 * @param settings  As for `towline_init`.
 * @param place     The place of this process.
 * @param modules   Gets the modules. The caller closes each with `towline_btl_close`.
 * @param room      How many modules fit there.
 * @param count     Gets how many there are.
 * @return          `TOWLINE_ERR_ARGUMENT` for an impossible place, or if there are more modules than fit; otherwise as `towline_init`.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre The texts end with 0, the array ends with null, `place` is readable, `modules` is writable for `room` handles, and `count` is
 * writable.
 */
int towline_btl_open(int threads,
                     const char *const *settings,
                     const struct towline_place_t *place,
                     struct towline_btl_t *modules,
                     size_t room,
                     size_t *count);

/**
 * Closes a module: makes progress until all that was sent has left, and ends. All its handles are stale then. Functions of the
 * program may be called before it returns, and not after.
 *
 * @param btl        The module. It has ended also if the function fails, unless it returns `TOWLINE_ERR_BUSY`, `TOWLINE_ERR_HANDLE`,
 *                   `TOWLINE_ERR_THREAD` or `TOWLINE_ERR_FORKED`.
 * @param timeout_ms How long to wait, in milliseconds; 0: frames that have not left are lost.
 * @return           `TOWLINE_ERR_OTHER` if frames had not left in time; `TOWLINE_ERR_BUSY` within a function that the module has called.
 *
 * No other call may use the module at the same time. Since ABI version 0.1.
 */
int towline_btl_close(struct towline_btl_t btl,
                      uint32_t timeout_ms);

/**
 * Makes progress once, without waiting: hands frames that have arrived to the functions of their tags, sends what waits, and calls
 * the functions of complete operations. Within such a function, and while another thread uses the module, it does nothing.
 *
 * @param btl     The module.
 * @param events  Gets how many operations were completed and frames handed over. May be null.
 * @return        `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre `events` is null or writable.
 */
int towline_btl_progress(struct towline_btl_t btl,
                         uint32_t *events);

/**
 * Copies memory of the program to memory of a peer. The function is called when it is done there.
 *
 * @param endpoint      The peer. If it is this process itself, the function is called before this one returns.
 * @param local         The memory of the program.
 * @param length        How many bytes.
 * @param registration  Its registration, or one whose bits are 0. Needed from `put_registration_threshold` bytes on.
 * @param key           The key of the peer's memory.
 * @param key_bytes     Its length.
 * @param address       Where to copy to: an address of the peer, within that memory.
 * @param function      Is called by progress when the operation is complete. May be null.
 * @param state         Passed to the function.
 * @return              Nothing is done, and the function is not called, with `TOWLINE_ERR_BUSY` (make progress and try again),
 *                      `TOWLINE_ERR_RANGE` if it reaches beyond the peer's memory, `TOWLINE_ERR_NOT_AVAILABLE` for a length or an
 *                      alignment that the module does not have, `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_ARGUMENT`,
 *                      `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre The memory is readable, and nothing changes it, until the operation is complete; the key is readable now. Any thread that uses the
 * module may call `function` with `state`.
 */
int towline_btl_put(struct towline_btl_endpoint_t endpoint,
                    const void *local,
                    size_t length,
                    struct towline_btl_registration_t registration,
                    const void *key,
                    size_t key_bytes,
                    uint64_t address,
                    towline_btl_done_fn function,
                    void *state);

/**
 * Copies memory of a peer to memory of the program. The function is called when it is there.
 *
 * @param endpoint  As for `towline_btl_put`, as are the other arguments and the errors. `registration` is needed from
 *                  `get_registration_threshold` bytes on.
 * @return          As for `towline_btl_put`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre The memory is writable, and nothing else uses it, until the operation is complete; the key is readable now. Any thread that uses the
 * module may call `function` with `state`.
 */
int towline_btl_get(struct towline_btl_endpoint_t endpoint,
                    void *local,
                    size_t length,
                    struct towline_btl_registration_t registration,
                    const void *key,
                    size_t key_bytes,
                    uint64_t address,
                    towline_btl_done_fn function,
                    void *state);

/**
 * Changes a word of a peer's memory. The function gets its old value.
 *
 * @param endpoint   The peer.
 * @param op         Which operation, with the values of `MCA_BTL_ATOMIC_` of Open MPI's `btl.h`: 1 add, 0x11 and, 0x12 or, 0x14 xor, 0x15
 *                   to 0x17 the same of truth values, 0x1a swap, 0x20 the lesser, 0x21 the greater.
 * @param flags      1: the word has 32 bits, and not 64. 2: it is a floating-point number.
 * @param operand    The operand. One of 32 bits is in the low half.
 * @param key        As for `towline_btl_put`, as are `key_bytes`, `address`, `function` and `state`.
 * @return           As for `towline_btl_put`; `TOWLINE_ERR_NOT_AVAILABLE` also if the word is not aligned to its size, or if the module
 *                   has no such operation on such words.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre The key is readable now. Any thread that uses the module may call `function` with `state`.
 */
int towline_btl_atomic(struct towline_btl_endpoint_t endpoint,
                       uint32_t op,
                       uint32_t flags,
                       uint64_t operand,
                       const void *key,
                       size_t key_bytes,
                       uint64_t address,
                       towline_btl_done_fn function,
                       void *state);

/**
 * Compares a word of a peer's memory with a value, and replaces it by another one if they are equal. The function gets its old value.
 *
 * @param endpoint  The peer.
 * @param flags     1: the word has 32 bits, and not 64.
 * @param compare   The expected value.
 * @param value     The new one.
 * @param key       As for `towline_btl_put`, as are `key_bytes`, `address`, `function` and `state`.
 * @return          As for `towline_btl_atomic`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre As for `towline_btl_atomic`.
 */
int towline_btl_compare_swap(struct towline_btl_endpoint_t endpoint,
                             uint32_t flags,
                             uint64_t compare,
                             uint64_t value,
                             const void *key,
                             size_t key_bytes,
                             uint64_t address,
                             towline_btl_done_fn function,
                             void *state);

/**
 * Makes progress until all one-sided operations that were begun on memory of a peer, or of all peers, are complete, and their functions
 * were called. With several threads, other threads may use the module meanwhile.
 *
 * @param btl       The module.
 * @param endpoint  The peer, or one whose bits are 0 for all.
 * @return          `TOWLINE_ERR_BUSY` within a function that the module has called, if an operation is not complete;
 *                  `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 */
int towline_btl_flush(struct towline_btl_t btl,
                      struct towline_btl_endpoint_t endpoint);

/**
 * Whether all one-sided operations that were begun on memory of a peer, or of all peers, are complete.
 *
 * @param btl       The module.
 * @param endpoint  The peer, or one whose bits are 0 for all.
 * @param flushed   Gets whether it is so.
 * @return          `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre `flushed` is writable.
 */
int towline_btl_is_flushed(struct towline_btl_t btl, struct towline_btl_endpoint_t endpoint, bool *flushed);

/**
 * The card of a module, which the module of the same rail in other processes needs to reach this process: some hundred bytes, the same
 * for all, as long as the module lives.
 *
 * Whoever can change cards on their way can have messages sent elsewhere, as with any exchange of addresses.
 *
 * @param btl     The module.
 * @param buffer  Gets the card. May be null if `size` is 0.
 * @param size    Bytes of `buffer`.
 * @param length  Gets the length of the card.
 * @return        `TOWLINE_ERR_NO_MEMORY` if the buffer is too short: `length` is set then, too. `TOWLINE_ERR_HANDLE`,
 *                `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre `buffer` is writable for `size` bytes, and `length` is writable.
 */
int towline_btl_card(struct towline_btl_t btl,
                     void *buffer,
                     size_t size,
                     size_t *length);

/**
 * Adds the process with this card. Sends nothing: the transport connects with the first frame. A process that was added before may be
 * added again, and has the same endpoint. The endpoint of this process itself serves one-sided operations, which are done at once.
 *
 * If the number of the process is that of one that has ended or was lost, or if there is no room, such processes are removed first, as
 * by `towline_btl_remove_peer`, even if this call fails then. Over sm this holds at once for a process that has ended in order. In all
 * other cases it holds once `towline_btl_progress` has noticed the end, which needs a connection to the process.
 *
 * @param btl       The module.
 * @param card      The card of the module of the same rail in the other process.
 * @param length    Its length in bytes.
 * @param peer      What functions of the program get for this process. May be null.
 * @param endpoint  Gets the endpoint. It ends with `towline_btl_remove_peer`, with the module, or when the process has ended and another
 *                  one is added in its place.
 * @return          `TOWLINE_ERR_ARGUMENT` for bytes that are no card of this job, or the card of another process with a number that is in
 *                  use; `TOWLINE_ERR_PEER_FAILED` if the transport does not reach the process, or if the module has as many peers as the
 *                  place allows; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre `card` is readable for `length` bytes, and `endpoint` is writable.
 */
int towline_btl_add_peer(struct towline_btl_t btl,
                         const void *card,
                         size_t length,
                         void *peer,
                         struct towline_btl_endpoint_t *endpoint);

/**
 * Removes a process. Sends and one-sided operations with it that are not complete end with `TOWLINE_ERR_CANCELLED`: the next progress
 * calls their functions. Its number may then be that of a new process.
 *
 * @param endpoint  The endpoint.
 * @return          `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 */
int towline_btl_remove_peer(struct towline_btl_endpoint_t endpoint);

/**
 * Sends a descriptor. The module owns it until the send is complete. A full transport is no error: the send waits in the module. A
 * descriptor may be sent several times at once, with the same function.
 *
 * @param endpoint    The peer.
 * @param descriptor  The descriptor.
 * @param tag         The tag of the frame: 0 to 254, but not 16.
 * @param flags       As for `towline_btl_alloc`; they replace those of the descriptor.
 * @param function    Is called by progress when the send is complete, if it was not so at once, or if the flags have
 *                    `MCA_BTL_DES_SEND_ALWAYS_CALLBACK`. May be null.
 * @param state       Passed to the function.
 * @param complete    Gets whether the send is complete already. A descriptor that the module owns is freed then, unless the function
 *                    will be called.
 * @return            Nothing is sent, and the program owns the descriptor, with `TOWLINE_ERR_BUSY` (make progress and try again),
 *                    `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_TAG`, `TOWLINE_ERR_ARGUMENT` if it is longer than `max_send_size`,
 *                    `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre Any thread that uses the module may call `function` with `state`, until the send is complete. `complete` is writable.
 */
int towline_btl_send(struct towline_btl_endpoint_t endpoint,
                     struct towline_btl_descriptor_t descriptor,
                     uint8_t tag,
                     uint32_t flags,
                     towline_btl_sent_fn function,
                     void *state,
                     bool *complete);

/**
 * Sends a header and data now, or does not send them.
 *
 * @param endpoint     The peer.
 * @param order        As for `towline_btl_alloc`.
 * @param flags        As for `towline_btl_alloc`.
 * @param tag          The tag of the frame: 0 to 254, but not 16.
 * @param header       The first bytes of the frame.
 * @param header_size  How many.
 * @param data         The bytes after them.
 * @param data_size    How many. Both together are at most the module's `eager_limit`.
 * @param descriptor   May be null. Otherwise, if the transport is full, gets a descriptor for header and data, which the program fills
 *                     and sends; its bits are 0 if there is none.
 * @param segment      Gets the memory of the descriptor. May be null if `descriptor` is.
 * @return             `TOWLINE_ERR_BUSY` if the transport is full; `TOWLINE_ERR_ARGUMENT` if the frame is too long, or the order is not one;
 *                     `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_TAG`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the module's level says. Since ABI version 0.1.
 *
 * @pre Header and data are readable. `descriptor` is null, or it and `segment` are writable.
 */
int towline_btl_sendi(struct towline_btl_endpoint_t endpoint,
                      uint8_t order,
                      uint32_t flags,
                      uint8_t tag,
                      const void *header,
                      size_t header_size,
                      const void *data,
                      size_t data_size,
                      struct towline_btl_descriptor_t *descriptor,
                      struct towline_btl_segment_t *segment);

/**
 * The rank of this process in a communicator.
 *
 * @param comm  The communicator.
 * @param rank  Gets the rank: 0 to the number of ranks - 1.
 * @return      `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `rank` is writable.
 */
int towline_comm_rank(struct towline_comm_t comm, uint32_t *rank);

/**
 * The number of ranks of a communicator.
 *
 * @param comm  The communicator.
 * @param size  Gets the number, at least 1.
 * @return      `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `size` is writable.
 */
int towline_comm_size(struct towline_comm_t comm, uint32_t *size);

/**
 * Makes a communicator of the same ranks, whose messages are separate. All ranks call it, and wait for each other.
 *
 * @param comm  The communicator.
 * @param made  Gets the new one. The caller frees it with `towline_comm_free`; it ends with its context at the latest.
 * @return      `TOWLINE_ERR_BUSY` if this rank has too many communicators, and `TOWLINE_ERR_OTHER_RANK` if another one has: no rank
 *              has made it then. `TOWLINE_ERR_PEER_FAILED` if a rank was lost.
 *
 * One thread at a time calls such functions for one communicator. Since ABI version 0.1.
 *
 * @pre `made` is writable.
 */
int towline_comm_dup(struct towline_comm_t comm,
                     struct towline_comm_t *made);

/**
 * Makes communicators of the ranks that give the same color. All ranks call it, and wait for each other.
 *
 * @param comm   The communicator.
 * @param color  The color: any number, or `TOWLINE_NO_COLOR` for a rank that wants no communicator.
 * @param key    Ranks of one color are ordered by their keys, and by their ranks in `comm` where the keys are equal.
 * @param made   Gets the new communicator, or 0 for `TOWLINE_NO_COLOR`. As for `towline_comm_dup`.
 * @return       As for `towline_comm_dup`, for all colors together.
 *
 * One thread at a time calls such functions for one communicator. Since ABI version 0.1.
 *
 * @pre `made` is writable.
 */
int towline_comm_split(struct towline_comm_t comm, uint32_t color, uint32_t key, struct towline_comm_t *made);

/**
 * Frees a communicator of this rank; the other ranks free theirs. Messages that this rank has not received in it are lost, and
 * receives that no message has matched are cancelled. Other operations in progress go on. All of them are still to be waited for.
 *
 * @param comm  The communicator.
 * @return      `TOWLINE_ERR_ARGUMENT` for the communicator of all ranks, which ends with its context; `TOWLINE_ERR_HANDLE`,
 *              `TOWLINE_ERR_THREAD`.
 *
 * No other call may use this handle at the same time. Since ABI version 0.1.
 */
int towline_comm_free(struct towline_comm_t comm);

/**
 * Lets receives from any source wait again although ranks have failed: see `TOWLINE_ERR_PEER_FAILED`.
 *
 * @param comm  The communicator.
 * @return      `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 */
int towline_comm_acknowledge_failures(struct towline_comm_t comm);

/**
 * Joins the job of this process, and returns when all ranks have joined. `towline run` or a PMIx launcher (mpirun, prterun, srun) has
 * started it; `towline info` says which, and the setting `bootstrap` chooses. A process that no launcher started is a job of one
 * rank. `towline_init_with` joins a job by other means.
 *
 * @param threads   A `towline_thread_level_t`. The level that is asked for is granted.
 * @param settings  Settings as `name=value`, such as `transports=sm,tcp`, in an array that ends with a null pointer. `towline info`
 *                  lists the names. A variable of the environment (`TOWLINE_TRANSPORTS`) overrides the setting. May be null.
 * @param context   Gets the context. The caller ends it with `towline_finish`, `towline_leave` or `towline_abort`.
 * @return          `TOWLINE_ERR_SETTING` for a setting; `TOWLINE_ERR_JOB` if the job cannot be joined, for example because this
 *                  process has joined it before; `TOWLINE_ERR_PEER_FAILED` if a rank cannot be reached; `TOWLINE_ERR_BUSY` if this
 *                  process has 256 contexts.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre The texts end with 0, the array ends with null, and `context` is writable.
 */
int towline_init(int threads,
                 const char *const *settings,
                 struct towline_context_t *context);

/**
 * Ends a context: waits until all other ranks finish, too, and until the messages of this rank were sent. All handles of the
 * context are stale then, and memory of operations in progress belongs to the caller again.
 *
 * @param context  The context. It has ended also if the function fails, unless it returns `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`
 *                 or `TOWLINE_ERR_FORKED`.
 * @return         `TOWLINE_ERR_PEER_FAILED` if ranks were lost before they had finished; `TOWLINE_ERR_JOB` if some rank did not
 *                 finish in time, or if the launcher cannot be reached.
 *
 * No other call may use the context at the same time. Since ABI version 0.1.
 */
int towline_finish(struct towline_context_t context);

/**
 * Ends a context without waiting for the programs of other ranks: their receives from this rank, and their sends to it, end with
 * `TOWLINE_ERR_PEER_FINISHED`. What was sent before is delivered.
 *
 * @param context  The context.
 * @return         `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * No other call may use the context at the same time. Since ABI version 0.1.
 */
int towline_leave(struct towline_context_t context);

/**
 * Asks the launcher to end all ranks, and ends this process with its destructors and `atexit` functions.
 *
 * @param context  The context. If it is none, only this process ends.
 * @param status   The exit status of the job: 1 to 255. Any other counts as 1.
 * @param why      A text that the launcher prints. It ends with 0. May be null.
 *
 * Thread-safe as the context's level says. Does not return. Since ABI version 0.1.
 *
 * @pre `why` is null, or the address of a text that ends with 0.
 */
void towline_abort(struct towline_context_t context, int status, const char *why) __attribute__((noreturn));

/**
 * Makes progress once, without waiting. All functions that wait make progress, too.
 *
 * @param context  The context.
 * @param events   Gets how many events there were. May be null.
 * @return         `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `events` is null or writable.
 */
int towline_progress(struct towline_context_t context, uint32_t *events);

/**
 * The communicator of all ranks of the job.
 *
 * @param context  The context.
 * @param world    Gets its handle, which is always the same. It ends with the context.
 * @return         `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `world` is writable.
 */
int towline_world(struct towline_context_t context, struct towline_comm_t *world);

/**
 * What a context is doing: operations in progress with their peers, tags and lengths, and messages that no receive has taken.
 *
 * @param context  The context.
 * @param form     A `towline_report_form_t`.
 * @param buffer   Gets the report, cut to `size` - 1 bytes, and a 0. May be null if `size` is 0.
 * @param size     Bytes of `buffer`.
 * @param length   Gets the length of the whole report, without the 0. May be null.
 * @return         `TOWLINE_ERR_ARGUMENT`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `buffer` is writable for `size` bytes, and `length` is null or writable.
 */
int towline_report(struct towline_context_t context, int form, char *buffer, size_t size, size_t *length);

/**
 * How many counters a context has. The number, the names and their order stay the same as long as the context exists. Other versions
 * of the library may have others, so a program looks them up by name, or lists them all.
 *
 * Names have the part that counts, and what it counts: `program.bytes_sent` is what the program itself has sent with functions of
 * this interface, `engine.eager_sent` is of the library's protocol, `one_sided.served` of windows, and `tcp.0.reads` of the first
 * transport of that kind.
 *
 * @param context  The context.
 * @param count    Gets the number.
 * @return         `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `count` is writable.
 */
int towline_counter_count(struct towline_context_t context,
                          size_t *count);

/**
 * A counter by its index.
 *
 * @param context  The context.
 * @param index    The index: 0 to the number of counters - 1.
 * @param name     Gets the name. The text lives as long as the context. May be null.
 * @param what     Gets what is counted, in words. The text lives as long as the context. May be null.
 * @param value    Gets the number so far. It never decreases, but begins again at 0 after 2^64 - 1. May be null.
 * @return         `TOWLINE_ERR_ARGUMENT` if there is no such index; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre The addresses are null or writable.
 */
int towline_counter_at(struct towline_context_t context, size_t index, const char **name, const char **what, uint64_t *value);

/**
 * The value of a counter by its name.
 *
 * @param context  The context.
 * @param name     The name, such as `program.messages_sent`. `towline_counter_at` lists all names.
 * @param value    Gets the number so far, as `towline_counter_at`.
 * @return         `TOWLINE_ERR_ARGUMENT` if this context has no such counter; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `name` is the address of a text that ends with 0, and `value` is writable.
 */
int towline_counter(struct towline_context_t context, const char *name, uint64_t *value);

/**
 * The text of the last error of the calling thread: what happened, whose fault it is, and what to do.
 *
 * A function that succeeds leaves the text as it is. The text is of UTF-8.
 *
 * @param buffer  Gets the text, cut to `size` - 1 bytes if it is longer, and a 0. May be null if `size` is 0.
 * @param size    Bytes of `buffer`.
 * @return        The length of the whole text in bytes, without the 0. 0: no function has failed in this thread.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre `buffer` is writable for `size` bytes.
 */
size_t towline_error_text(char *buffer, size_t size);

/**
 * Whose fault the last error of the calling thread is: who has to act.
 *
 * @return  `TOWLINE_FAULT_NONE` if no function has failed in this thread.
 *
 * Thread-safe. Since ABI version 0.1.
 */
enum towline_fault_t towline_error_fault(void);

/**
 * A short text for a code, such as "the message is longer than the buffer". `towline_error_text` says more about the case at hand.
 *
 * @param code  What a function returned. Any number is allowed.
 * @return      A text that ends with 0, and that lives as long as the process. Never null.
 *
 * Thread-safe. Since ABI version 0.1.
 */
const char *towline_strerror(int code);

/**
 * As `towline_init`, for a process whose own runtime exchanges what the ranks have to tell each other. No launcher of Towline is
 * needed, and its environment variables that describe a job (`TOWLINE_RANK` and others) do not count. All ranks call this. Some
 * things need a launcher of Towline, and are missing: ranks are not restarted, there are no reports of several ranks, and warnings
 * go to standard error.
 *
 * @param threads   As for `towline_init`.
 * @param settings  As for `towline_init`.
 * @param exchange  The functions, which are copied.
 * @param context   Gets the context, as for `towline_init`.
 * @return          `TOWLINE_ERR_ARGUMENT` for impossible ranks and missing functions; `TOWLINE_ERR_JOB` if a function fails, or does
 *                  not deliver the bytes of all ranks; otherwise as `towline_init`. The functions are not called after an error.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre As for `towline_init`. `exchange` is readable, its list of ranks is readable for its length, and its functions do what their types
 * say until the context has ended.
 */
int towline_init_with(int threads,
                      const char *const *settings,
                      const struct towline_exchange_t *exchange,
                      struct towline_context_t *context);

/**
 * Makes a layout of blocks at equal distances, like `MPI_Type_create_hvector`: the column of a matrix, for example.
 *
 * @param count   How many blocks there are.
 * @param block   How many items a block has, one after the other.
 * @param stride  The distance between the starts of two blocks, in bytes. It may be negative.
 * @param item    The layout of an item, or `TOWLINE_BYTES`. It may be freed afterwards.
 * @param layout  Gets the layout. The caller frees it with `towline_layout_free`.
 * @return        `TOWLINE_ERR_LAYOUT` if the layout reaches further than memory, or nests too deep (7 levels are always possible);
 *                `TOWLINE_ERR_HANDLE` for `item`; `TOWLINE_ERR_BUSY` if there are 16384 layouts.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre `layout` is writable.
 */
int towline_layout_vector(uint64_t count,
                          uint64_t block,
                          int64_t stride,
                          struct towline_layout_t item,
                          struct towline_layout_t *layout);

/**
 * Makes a layout of blocks at any places, like `MPI_Type_create_struct`. The blocks are packed in the order of the lists.
 *
 * @param count          How many blocks there are: the length of all lists.
 * @param blocks         How many items each block has.
 * @param displacements  Where each block begins, in bytes from the address that an operation is called with.
 * @param items          The layout of the items of each block, or `TOWLINE_BYTES`. Null: all are bytes. They may be freed afterwards.
 * @param layout         Gets the layout. The caller frees it with `towline_layout_free`.
 * @return               As for `towline_layout_vector`; `TOWLINE_ERR_ARGUMENT` for a list.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre The lists are readable for `count` entries, and `layout` is writable.
 */
int towline_layout_struct(size_t count,
                          const uint64_t *blocks,
                          const int64_t *displacements,
                          const struct towline_layout_t *items,
                          struct towline_layout_t *layout);

/**
 * Makes a layout of the same bytes with another extent, which is the distance between two items: `MPI_Type_create_resized`.
 *
 * @param item    The layout. It may be freed afterwards.
 * @param extent  The extent in bytes.
 * @param layout  Gets the layout. The caller frees it with `towline_layout_free`.
 * @return        As for `towline_layout_vector`.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre `layout` is writable.
 */
int towline_layout_resized(struct towline_layout_t item, int64_t extent, struct towline_layout_t *layout);

/**
 * Makes a layout of items that functions pack and unpack, for types that only the program knows.
 *
 * @param size    The length of an item in packed form, in bytes.
 * @param pack    Packs a part of a message. Null: nothing can be sent with this layout.
 * @param unpack  Unpacks a part of a message. Null: nothing can be received with this layout.
 * @param state   Passed to the functions. The library does not access it. It must be valid as long as an operation with this layout
 *                is in progress.
 * @param layout  Gets the layout. The caller frees it with `towline_layout_free`.
 * @return        `TOWLINE_ERR_BUSY` if there are 16384 layouts; `TOWLINE_ERR_LAYOUT` if `size` is above `INT64_MAX`.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre The functions do what `towline_pack_fn` and `towline_unpack_fn` say, and `layout` is writable.
 */
int towline_layout_functions(uint64_t size,
                             towline_pack_fn pack,
                             towline_unpack_fn unpack,
                             void *state,
                             struct towline_layout_t *layout);

/**
 * The length and the extent of an item of a layout.
 *
 * @param layout  The layout, or `TOWLINE_BYTES`.
 * @param size    Gets the length in packed form, in bytes. May be null.
 * @param extent  Gets the distance between two items, in bytes. For a layout of functions it is the length. May be null.
 * @return        `TOWLINE_ERR_HANDLE`.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre `size` and `extent` are null or writable.
 */
int towline_layout_size(struct towline_layout_t layout, uint64_t *size, int64_t *extent);

/**
 * Frees a layout. Operations in progress, and layouts that were made of it, keep what they need.
 *
 * @param layout  The layout. `TOWLINE_BYTES` is ignored.
 * @return        `TOWLINE_ERR_HANDLE`.
 *
 * No other call may use the handle at the same time. Since ABI version 0.1.
 */
int towline_layout_free(struct towline_layout_t layout);

/**
 * Sets a place to its defaults: job 0, a key of zeros, number 0 of 4096, 64 peers, alone on its host. The caller sets at least job,
 * key and number then.
 *
 * @param place  Gets the defaults.
 * @return       `TOWLINE_ERR_ARGUMENT` for a null pointer.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre `place` is writable.
 */
int towline_place_default(struct towline_place_t *place);

/**
 * Sets a place of a job whose processes share a secret, such as a credential of their launcher. Job and key are derived from the
 * secret, and do not reveal it. The other fields have their defaults.
 *
 * @param secret  The secret: random bytes, the same in all processes of the job, and at least 16 of them.
 * @param length  Its length in bytes.
 * @param number  The number of this process.
 * @param place   Gets the place.
 * @return        `TOWLINE_ERR_ARGUMENT` for a null pointer, or for a secret of less than 16 bytes.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre `secret` is readable for `length` bytes, and `place` is writable.
 */
int towline_place_from_secret(const void *secret, size_t length, uint32_t number, struct towline_place_t *place);

/**
 * Waits for a message, and returns its envelope. The message stays to be received.
 *
 * @param comm    The communicator.
 * @param source  The rank that sends it, or `TOWLINE_ANY_SOURCE`.
 * @param tag     Its tag, or `TOWLINE_ANY_TAG`.
 * @param status  Gets the source, the tag and the length. May be null.
 * @return        As `towline_recv`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `status` is null or writable.
 */
int towline_probe(struct towline_comm_t comm, uint32_t source, uint32_t tag, struct towline_status_t *status);

/**
 * Looks for a message without waiting. Makes progress once. Otherwise as `towline_probe`.
 *
 * @param found   Gets whether there is a message.
 * @param status  As for `towline_probe`. It is set if there is one. May be null.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `found` is writable, and `status` is null or writable.
 */
int towline_iprobe(struct towline_comm_t comm, uint32_t source, uint32_t tag, bool *found, struct towline_status_t *status);

/**
 * Waits for a message, and takes it, so that no other receive gets it. Otherwise as `towline_probe`.
 *
 * @param message  Gets the message. The caller gives it to `towline_mrecv`, `towline_imrecv` or `towline_message_discard`.
 * @return         As `towline_probe`; `TOWLINE_ERR_BUSY` if there are too many requests, or 16384 messages that were taken.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `message` is writable, and `status` is null or writable.
 */
int towline_mprobe(struct towline_comm_t comm,
                   uint32_t source,
                   uint32_t tag,
                   struct towline_message_t *message,
                   struct towline_status_t *status);

/**
 * Looks for a message without waiting, and takes it if there is one. Makes progress once. Otherwise as `towline_mprobe`.
 *
 * @param found    Gets whether there is a message.
 * @param message  As for `towline_mprobe`. It is set if there is one.
 * @param status   As for `towline_mprobe`. It is set if there is one. May be null.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `found` and `message` are writable, and `status` is null or writable.
 */
int towline_improbe(struct towline_comm_t comm,
                    uint32_t source,
                    uint32_t tag,
                    bool *found,
                    struct towline_message_t *message,
                    struct towline_status_t *status);

/**
 * Receives a message that was taken, and returns when it has arrived.
 *
 * @param message  The message. It is 0 if the receive was begun. Otherwise it is still the caller's, perhaps with other bits.
 * @param buffer   As for `towline_recv`, as are `count`, `layout` and `status`.
 * @return         As `towline_recv`; `TOWLINE_ERR_HANDLE` if there is no such message, or its communicator was freed.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre As for `towline_recv`; `message` is readable and writable.
 */
int towline_mrecv(struct towline_message_t *message,
                  void *buffer,
                  size_t count,
                  struct towline_layout_t layout,
                  struct towline_status_t *status);

/**
 * Begins to receive a message that was taken. Otherwise as `towline_mrecv`.
 *
 * @param request  Gets the request, as for `towline_irecv`.
 * @return         As `towline_mrecv`, but for the errors of the message itself: nothing was begun then.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre As for `towline_irecv`; `message` is readable and writable.
 */
int towline_imrecv(struct towline_message_t *message,
                   void *buffer,
                   size_t count,
                   struct towline_layout_t layout,
                   struct towline_request_t *request);

/**
 * Receives a message that was taken, and discards it.
 *
 * @param message  The message. It is 0 if the function succeeds. Otherwise it is still the caller's, perhaps with other bits.
 * @return         `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_BUSY`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `message` is readable and writable.
 */
int towline_message_discard(struct towline_message_t *message);

/**
 * Begins to send a message, as `towline_isend`, but the end of the operation comes by `towline_poll_queue`, with `user`: a runtime
 * with many operations need not ask each of them.
 *
 * @param user  Any word.
 * @param done  Gets whether the send is complete already: it does not come by the queue then.
 * @return      As `towline_isend`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre The memory is readable, and nothing changes it, until the completion was taken. `done` is writable.
 */
int towline_isend_queued(struct towline_comm_t comm,
                         const void *buffer,
                         size_t count,
                         struct towline_layout_t layout,
                         uint32_t dest,
                         uint32_t tag,
                         int mode,
                         uint64_t user,
                         bool *done);

/**
 * Begins to receive a message, as `towline_irecv`, but the end of the operation comes by `towline_poll_queue`, with `user`.
 *
 * @param user  Any word.
 * @return      As `towline_irecv`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre The memory is writable, and nothing else uses it, until the completion was taken.
 */
int towline_irecv_queued(struct towline_comm_t comm,
                         void *buffer,
                         size_t count,
                         struct towline_layout_t layout,
                         uint32_t source,
                         uint32_t tag,
                         uint64_t user);

/**
 * Begins to receive a message that was taken, as `towline_imrecv`, but the end of the operation comes by `towline_poll_queue`, with
 * `user`.
 *
 * @param user  Any word.
 * @return      As `towline_imrecv`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre As for `towline_irecv_queued`; `message` is readable and writable.
 */
int towline_imrecv_queued(struct towline_message_t *message,
                          void *buffer,
                          size_t count,
                          struct towline_layout_t layout,
                          uint64_t user);

/**
 * Cancels a queued operation that was begun with this word: a receive that no message has matched, or a send of which nothing has
 * left. Its end comes by the queue, cancelled or not. Looks through all operations in progress.
 *
 * @param context    The context of the operation.
 * @param user       The word.
 * @param cancelled  Gets whether it was cancelled. May be null.
 * @return           `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `cancelled` is null or writable.
 */
int towline_cancel_queued(struct towline_context_t context, uint64_t user, bool *cancelled);

/**
 * Makes progress, without waiting, and takes completions of queued operations, in any communicator of the context, the oldest first.
 *
 * @param context      The context.
 * @param completions  Gets the completions.
 * @param most         How many there is room for: at least 1. If all were used, there may be more.
 * @param count        Gets how many there were.
 * @param events       Gets how many events there were in this call. 0: nothing has arrived and nothing has left; operations that had
 *                     ended before may still be among the completions. A runtime that gives its processor away while nothing happens
 *                     keeps it if there were any: parts of what it waits for may have arrived. May be null. Is not set if the call
 *                     fails.
 * @return             `TOWLINE_ERR_ARGUMENT`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`. The codes of the operations are in their
 *                     statuses.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `completions` is writable for `most` items, `count` is writable, and `events` is null or writable.
 */
int towline_poll_queue(struct towline_context_t context,
                       struct towline_completion_t *completions,
                       size_t most,
                       size_t *count,
                       uint32_t *events);

/**
 * Receives a message, and returns when it has arrived.
 *
 * @param comm    The communicator.
 * @param buffer  The address of the first item. May be null if there is no byte.
 * @param count   How many items there is room for. The message may be shorter.
 * @param layout  The layout of an item, or `TOWLINE_BYTES` for bytes.
 * @param source  The rank that sends it, or `TOWLINE_ANY_SOURCE`.
 * @param tag     Its tag, or `TOWLINE_ANY_TAG`.
 * @param status  Gets the source, the tag and the length, and the code of the operation, also if it fails. May be null.
 * @return        `TOWLINE_ERR_TRUNCATED` if the message is longer: the part that fits was delivered. `TOWLINE_ERR_LAYOUT` if the
 *                layout contains a byte twice. `TOWLINE_ERR_PEER_FAILED` from any source, if some rank has failed: see
 *                `towline_comm_acknowledge_failures`. Otherwise as `towline_send`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre The memory is writable, and nothing else uses it, until the function returns. `status` is null or writable.
 */
int towline_recv(struct towline_comm_t comm,
                 void *buffer,
                 size_t count,
                 struct towline_layout_t layout,
                 uint32_t source,
                 uint32_t tag,
                 struct towline_status_t *status);

/**
 * Begins to receive a message. Otherwise as `towline_recv`.
 *
 * @param request  Gets the request. `towline_wait` or a similar function completes it, and has the status.
 * @return         As `towline_recv`, but for the errors of the message itself: nothing was begun then.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre The memory is writable, and nothing else uses it, until the request is complete. `request` is writable.
 */
int towline_irecv(struct towline_comm_t comm,
                  void *buffer,
                  size_t count,
                  struct towline_layout_t layout,
                  uint32_t source,
                  uint32_t tag,
                  struct towline_request_t *request);

/**
 * Waits until an operation is complete, and frees its request.
 *
 * @param request  The request. It is `TOWLINE_REQUEST_NULL` afterwards, whatever the outcome is. A null request is complete.
 * @param status   Gets the status of a receive, with the code of the operation. That of a send has only the code. May be null.
 * @return         The code of the operation, as `towline_send` or `towline_recv` would return it; `TOWLINE_ERR_HANDLE` if there is no
 *                 such request. `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED` and `TOWLINE_ERR_ARGUMENT`: request and status are unchanged.
 *
 * Thread-safe as the context's level says; one thread at a time waits for a request. Since ABI version 0.1.
 *
 * @pre `request` is readable and writable, and `status` is null or writable.
 */
int towline_wait(struct towline_request_t *request,
                 struct towline_status_t *status);

/**
 * Looks whether an operation is complete, and frees its request then. Makes progress once.
 *
 * @param request  The request. If the operation is complete, it is `TOWLINE_REQUEST_NULL` afterwards. A null request is complete.
 * @param done     Gets whether the operation is complete.
 * @param status   As for `towline_wait`. It is set if the operation is complete. May be null.
 * @return         As `towline_wait`. A failed operation is complete.
 *
 * Thread-safe as the context's level says; one thread at a time tests a request. Since ABI version 0.1.
 *
 * @pre `request` is readable and writable, `done` is writable, and `status` is null or writable.
 */
int towline_test(struct towline_request_t *request, bool *done, struct towline_status_t *status);

/**
 * Waits until all operations are complete, and frees their requests.
 *
 * @param count     How many requests there are.
 * @param requests  The requests. All are `TOWLINE_REQUEST_NULL` afterwards.
 * @param statuses  Gets a status for each, with the code of the operation in `error`. May be null.
 * @return          The code of the first operation of the list that has failed, or `TOWLINE_SUCCESS`.
 *
 * Thread-safe as `towline_wait`. Since ABI version 0.1.
 *
 * @pre `requests` is readable and writable for `count` entries, and `statuses` is null or writable for as many.
 */
int towline_wait_all(size_t count, struct towline_request_t *requests, struct towline_status_t *statuses);

/**
 * Waits until one of several operations is complete, and frees its request. Null requests are skipped.
 *
 * @param count     How many requests there are. All belong to one context.
 * @param requests  The requests. The one that is complete is `TOWLINE_REQUEST_NULL` afterwards.
 * @param index     Gets the index of the complete one, or `TOWLINE_NO_INDEX` if all are null.
 * @param status    As for `towline_wait`. May be null.
 * @return          As `towline_wait`, for the operation at `index`; `TOWLINE_ERR_ARGUMENT` for requests of different contexts.
 *
 * Thread-safe as `towline_wait`. Since ABI version 0.1.
 *
 * @pre `requests` is readable and writable for `count` entries, `index` is writable, and `status` is null or writable.
 */
int towline_wait_any(size_t count, struct towline_request_t *requests, size_t *index, struct towline_status_t *status);

/**
 * As `towline_wait_any`, without waiting. Makes progress.
 *
 * @param count     How many requests there are.
 * @param requests  The requests.
 * @param index     Gets the index of a complete one, or `TOWLINE_NO_INDEX` if none is complete, or all are null.
 * @param status    As for `towline_wait`. It is set if one is complete. May be null.
 * @return          As `towline_wait`, for the operation at `index`.
 *
 * Thread-safe as `towline_wait`. Since ABI version 0.1.
 *
 * @pre As for `towline_wait_any`.
 */
int towline_test_any(size_t count, struct towline_request_t *requests, size_t *index, struct towline_status_t *status);

/**
 * Cancels a receive that no message has matched, or a send of which nothing has left. It then ends with `TOWLINE_ERR_CANCELLED`; the
 * request is still to be waited for, whether it was cancelled or not.
 *
 * @param request    The request.
 * @param cancelled  Gets whether it was cancelled. May be null.
 * @return           `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`. A request that is complete, null or none is not cancelled, and that is
 *                   no error.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `cancelled` is null or writable.
 */
int towline_cancel(struct towline_request_t request,
                   bool *cancelled);

/**
 * Sends a message, and returns when its memory may be changed, or later as the mode says.
 *
 * @param comm    The communicator.
 * @param buffer  The address of the first item. May be null if the message has no bytes.
 * @param count   How many items there are.
 * @param layout  The layout of an item, or `TOWLINE_BYTES` for bytes.
 * @param dest    The rank to send to.
 * @param tag     A number for receives to match: 0 to `TOWLINE_TAG_MAX`.
 * @param mode    A `towline_send_mode_t`.
 * @return        `TOWLINE_ERR_RANK`, `TOWLINE_ERR_TAG`, `TOWLINE_ERR_ARGUMENT`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`;
 *                `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_PEER_FINISHED`, `TOWLINE_ERR_RESTARTED` for the other rank;
 *                `TOWLINE_ERR_NO_COMMUNICATOR` if it has freed the communicator; `TOWLINE_ERR_NOT_READY`; `TOWLINE_ERR_LAYOUT` if the layout
 *                has no function that packs, or if that has failed; `TOWLINE_ERR_FORKED`; `TOWLINE_ERR_BUSY` if as many operations are in progress as the setting `requests` allows.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre The memory is readable, and nothing changes it, until the function returns.
 */
int towline_send(struct towline_comm_t comm,
                 const void *buffer,
                 size_t count,
                 struct towline_layout_t layout,
                 uint32_t dest,
                 uint32_t tag,
                 int mode);

/**
 * Begins to send a message. Otherwise as `towline_send`.
 *
 * @param request  Gets the request. `towline_wait` or a similar function completes it. It may be `TOWLINE_REQUEST_NULL` if the send
 *                 is complete; such a request is treated as a complete one.
 * @return         As `towline_send`: nothing was begun then, unless a function of the layout has failed (`TOWLINE_ERR_LAYOUT`).
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre The memory is readable, and nothing changes it, until the request is complete. `request` is writable.
 */
int towline_isend(struct towline_comm_t comm,
                  const void *buffer,
                  size_t count,
                  struct towline_layout_t layout,
                  uint32_t dest,
                  uint32_t tag,
                  int mode,
                  struct towline_request_t *request);

/**
 * A setting of the list of all settings, which `towline info` prints, too.
 *
 * @param index    Which one: from 0.
 * @param setting  Gets it.
 * @return         `TOWLINE_ERR_RANGE` if there are fewer settings.
 *
 * Thread-safe. Since ABI version 0.1.
 *
 * @pre `setting` is writable.
 */
int towline_setting(size_t index, struct towline_setting_t *setting);

/**
 * A descriptor that becomes readable when something may have happened in a context, for `poll`, `epoll` and event loops. A program
 * that waits for nothing but operations of one context needs none: `towline_wait` and the like sleep by themselves.
 *
 * The program looks at its operations, arms the descriptor, and sleeps if it may:
 *
 * ```c
 * for (;;) {
 *     towline_test(&request, &done, &status); // makes progress
 *     if (done) break;
 *     towline_arm(context, &may_sleep);
 *     if (may_sleep) poll(descriptors, 2, -1); // this one with POLLIN, and others
 * }
 * ```
 *
 * An event makes the descriptor readable, and so does the end of half a second (the setting `idle_sleep_ms`), since the context has
 * to look at other ranks now and then. A sleep may also end without a reason. The program does not read from the descriptor.
 *
 * @param context  The context.
 * @param fd       Gets the descriptor. It is the context's: the program does not close it, and it is closed when the context ends. It
 *                 is always the same one.
 * @return         `TOWLINE_ERR_OTHER` if the system has no descriptor left; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`,
 *                 `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the context's level says. It works at all levels. Since ABI version 0.1.
 *
 * @pre `fd` is writable.
 */
int towline_wait_fd(struct towline_context_t context,
                    int *fd);

/**
 * Prepares for a sleep on the descriptor of `towline_wait_fd`: from now on the next event makes it readable. Makes no progress.
 *
 * One thread at a time arms and sleeps so, in a loop as `towline_wait_fd` shows it. Other threads may use the context meanwhile: what
 * they make happen ends the sleep, too. Between this call and the sleep, the thread itself calls no function of the context.
 *
 * @param context    The context.
 * @param may_sleep  Gets whether the program may sleep. If not, something has happened since the last call, or there is work: look at
 *                   the operations again first.
 * @return           As `towline_wait_fd`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `may_sleep` is writable.
 */
int towline_arm(struct towline_context_t context,
                bool *may_sleep);

/**
 * The ABI version of the library that the program runs with.
 *
 * @return  `major * 65536 + minor`. A program needs the major version of its header, and at least the minor one.
 *
 * Thread-safe. Since ABI version 0.1.
 */
uint32_t towline_abi_version(void);

/**
 * The version of the library, such as "0.1.0".
 *
 * @return  A text that ends with 0, and that lives as long as the process.
 *
 * Thread-safe. Since ABI version 0.1.
 */
const char *towline_version(void);

/**
 * Makes a window, with memory of the library: `MPI_Win_allocate`. All ranks call it, or `towline_window_create`, and wait for each
 * other. Ranks on one host access such memory directly, where the system allows it. In a job over dpu it lies in the memory of
 * this rank's DPU, if it fits, and the DPU serves other ranks while this one makes no call.
 *
 * @param comm    The communicator. The window has one of its own, so this one may be freed.
 * @param bytes   The length of this rank's part, which may differ from that of other ranks, and may be 0. The memory is zeroed.
 * @param access  What other ranks may do with this part: `TOWLINE_ACCESS_ALL`, or a sum of the others.
 * @param window  Gets the window. The caller ends it with `towline_window_free`; it ends with its context at the latest.
 * @return        `TOWLINE_ERR_NO_MEMORY` or `TOWLINE_ERR_BUSY` if this rank has too little memory, or too many windows or
 *                communicators, and `TOWLINE_ERR_OTHER_RANK` if another one has: no rank has made the window then.
 *                `TOWLINE_ERR_PEER_FAILED` if a rank was lost.
 *
 * One thread at a time calls such functions for one communicator. Since ABI version 0.1.
 *
 * @pre `window` is writable.
 */
int towline_window_allocate(struct towline_comm_t comm,
                            size_t bytes,
                            uint32_t access,
                            struct towline_window_t *window);

/**
 * Makes a window over memory of the caller: `MPI_Win_create`. Operations of other ranks on it are done by this rank when it makes
 * progress. Atomic operations need memory that is aligned for their words. Otherwise as `towline_window_allocate`.
 *
 * @param base   The memory of this rank's part. It is in use until the window or its context has ended. May be null if `bytes` is 0.
 * @param bytes  The length of this rank's part, which may differ from that of other ranks, and may be 0.
 * @return       As `towline_window_allocate`. The memory is not in use after an error.
 *
 * One thread at a time calls such functions for one communicator. Since ABI version 0.1.
 *
 * @pre The memory is readable and writable, and the program accesses it only while no rank does: see `towline_window_base`. `window` is
 * writable.
 */
int towline_window_create(struct towline_comm_t comm,
                          void *base,
                          size_t bytes,
                          uint32_t access,
                          struct towline_window_t *window);

/**
 * Ends a window, after all operations of all ranks on it are complete: `MPI_Win_free`. All ranks call it, and wait for each other.
 *
 * @param window  The window. It has ended also if the function fails, unless it returns `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD` or
 *                `TOWLINE_ERR_FORKED`; memory of the caller is the caller's again.
 * @return        The errors of `towline_window_flush_all`; `TOWLINE_ERR_PEER_FAILED` if a rank was lost.
 *
 * No other call may use this handle at the same time. Since ABI version 0.1.
 */
int towline_window_free(struct towline_window_t window);

/**
 * The memory of this rank's own part.
 *
 * The program may access it while no operation of another rank does: for example, after `towline_window_fence`, until a rank begins
 * the next operations. A word that other ranks change at any time is read by an atomic operation of `towline_window_fetch_op`.
 *
 * @param window  The window.
 * @param base    Gets the address of the first byte. It stays the same until the window ends. May be null.
 * @param bytes   Gets the length. May be null.
 * @return        `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `base` and `bytes` are null or writable.
 */
int towline_window_base(struct towline_window_t window,
                        void **base,
                        uint64_t *bytes);

/**
 * The length of a rank's part, in bytes.
 *
 * @param window  The window.
 * @param rank    The rank, as in the communicator that the window was made with.
 * @param bytes   Gets the length.
 * @return        `TOWLINE_ERR_RANK`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `bytes` is writable.
 */
int towline_window_size(struct towline_window_t window, uint32_t rank, uint64_t *bytes);

/**
 * Writes to a rank's part: `MPI_Put`. It is complete after the next flush, which also reports errors at the target. Operations may be
 * reordered between two flushes.
 *
 * @param window  The window.
 * @param from    The data. It may be changed when the function returns. May be null if `bytes` is 0.
 * @param bytes   The length of the data.
 * @param rank    The rank whose part it is.
 * @param offset  The place in the part, in bytes from its beginning.
 * @return        `TOWLINE_ERR_RANGE` if the data reaches beyond the part; `TOWLINE_ERR_RANK`, `TOWLINE_ERR_ARGUMENT`,
 *                `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`; `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_RESTARTED`
 *                for that rank.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre The data is readable, and nothing changes it, until the function returns.
 */
int towline_window_put(struct towline_window_t window,
                       const void *from,
                       size_t bytes,
                       uint32_t rank,
                       uint64_t offset);

/**
 * Reads from a rank's part: `MPI_Get`. It is complete when the function returns. A get that overlaps a put in time may return any
 * mixture of old and new bytes.
 *
 * @param window  The window.
 * @param into    Gets the data. Its contents are undefined after an error. May be null if `bytes` is 0.
 * @param bytes   The length.
 * @param rank    The rank whose part it is.
 * @param offset  The place in the part, in bytes from its beginning.
 * @return        `TOWLINE_ERR_DENIED` if the rank does not allow it; otherwise as `towline_window_put`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre The memory is writable, and nothing else uses it, until the function returns.
 */
int towline_window_get(struct towline_window_t window, void *into, size_t bytes, uint32_t rank, uint64_t offset);

/**
 * Waits until all operations of this process on a rank's part are complete: any later read there sees their effects.
 * `MPI_Win_flush`.
 *
 * @param window  The window.
 * @param rank    The rank whose part it is.
 * @return        The first error of an operation since the last flush: `TOWLINE_ERR_DENIED` or `TOWLINE_ERR_PEER_FAILED`. Otherwise
 *                `TOWLINE_ERR_RANK`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 */
int towline_window_flush(struct towline_window_t window,
                         uint32_t rank);

/**
 * As `towline_window_flush`, for the parts of all ranks: `MPI_Win_flush_all`.
 *
 * @param window  The window.
 * @return        As `towline_window_flush`, for the first rank with an error.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 */
int towline_window_flush_all(struct towline_window_t window);

/**
 * Flushes the parts of all ranks, and waits until all ranks have done so: what any rank has begun before is complete everywhere.
 * `MPI_Win_fence`. All ranks call it.
 *
 * @param window  The window.
 * @return        As `towline_window_flush_all`; `TOWLINE_ERR_PEER_FAILED` if a rank was lost. The ranks have waited for each other also
 *                if operations have failed.
 *
 * One thread at a time calls it for one window. Since ABI version 0.1.
 */
int towline_window_fence(struct towline_window_t window);

/**
 * Opens a context that starts alone: a worker. It is for a runtime that has an exchange of its own, such as an MPI library. No
 * launcher and no other process is needed, and nothing waits.
 *
 * The runtime carries the card of each process (`towline_worker_card`) to the others, which add it (`towline_worker_add_peer`), and
 * makes communicators of processes (`towline_comm_create`). Both ends must add each other; a message to a process that has not done
 * so waits. The communicator of `towline_world` contains this process alone.
 *
 * @param threads   As for `towline_init`, as are `settings` and `context`.
 * @param place     The place of this process.
 * @return          `TOWLINE_ERR_ARGUMENT` for an impossible place; otherwise as `towline_init`.
 *
 * `towline_finish` and `towline_leave` end the context: both deliver what was sent, and wait for no other process. `towline_finish`
 * says whether that went well. Thread-safe. Since ABI version 0.1.
 *
 * @pre The texts end with 0, the array ends with null, `place` is readable and `context` is writable.
 */
int towline_worker_open(int threads,
                        const char *const *settings,
                        const struct towline_place_t *place,
                        struct towline_context_t *context);

/**
 * The card of this process, which others need to reach it: some hundred bytes, the same for all, as long as the context lives.
 *
 * Whoever can change cards on their way can have messages sent elsewhere, as with any exchange of addresses.
 *
 * @param context  A context of `towline_worker_open`.
 * @param buffer   Gets the card. May be null if `size` is 0.
 * @param size     Bytes of `buffer`.
 * @param length   Gets the length of the card.
 * @return         `TOWLINE_ERR_NO_MEMORY` if the buffer is too short: `length` is set then, too. `TOWLINE_ERR_ARGUMENT` for another kind
 *                 of context; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `buffer` is writable for `size` bytes, and `length` is writable.
 */
int towline_worker_card(struct towline_context_t context,
                        void *buffer,
                        size_t size,
                        size_t *length);

/**
 * Adds the process with this card. Sends nothing: the transports connect with the first message. A process that was added before, or
 * this one itself, may be added again, which changes nothing. If its number is that of a process that has ended or was lost, or if
 * there is no room, such processes are removed first, as by `towline_worker_remove_peer`.
 *
 * @param context  A context of `towline_worker_open`.
 * @param card     The card.
 * @param length   Its length in bytes.
 * @param number   Gets the number of the process. May be null.
 * @return         `TOWLINE_ERR_ARGUMENT` for bytes that are no card of this job, or the card of another process with a number that is
 *                 in use; `TOWLINE_ERR_BUSY` if there are as many peers as the place allows; `TOWLINE_ERR_PEER_FAILED` if no transport
 *                 reaches the process; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `card` is readable for `length` bytes. `number` is null or writable.
 */
int towline_worker_add_peer(struct towline_context_t context,
                            const void *card,
                            size_t length,
                            uint32_t *number);

/**
 * Forgets a process: one that has ended, or that is not needed any more. Operations with it end with `TOWLINE_ERR_PEER_FINISHED`. Its
 * communicators should have been freed before. Its number may then be that of a new process.
 *
 * @param context  A context of `towline_worker_open`.
 * @param number   The number of the process.
 * @return         `TOWLINE_ERR_RANK` if there is no such peer, or if it is this process; `TOWLINE_ERR_ARGUMENT` for another kind of
 *                 context; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 */
int towline_worker_remove_peer(struct towline_context_t context,
                               uint32_t number);

/**
 * Makes a communicator of processes that were added. Local: no message is sent, and nothing waits. Messages for it that have arrived
 * already are kept for it.
 *
 * In such a communicator tags from 2^31 to 2^32 - 2 are for protocols of the runtime. `TOWLINE_ANY_TAG` does not match them.
 * `towline_comm_dup` and `towline_comm_split` use some of them (2^31 + 767 to 2^31 + 1022), so a runtime uses either these functions
 * or these tags.
 *
 * @param context  A context of `towline_worker_open`.
 * @param id       A number below 2^31, the same at all members, that no other communicator with a common member has.
 * @param members  The numbers of the members. Rank r is the process `members[r]`.
 * @param count    How many members there are.
 * @param rank     The rank of this process, or `TOWLINE_NO_RANK` if it is not a member: it sends to the members, and receives from
 *                 them, as with the remote group of an inter-communicator.
 * @param made     Gets the communicator. The caller frees it with `towline_comm_free`; it ends with its context at the latest.
 * @return         `TOWLINE_ERR_RANK` if a member was not added, or if `rank` is that of another process; `TOWLINE_ERR_ARGUMENT` for an
 *                 impossible or used id, or another kind of context; `TOWLINE_ERR_BUSY` if there are too many communicators (setting
 *                 `communicators`); `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
 *
 * Thread-safe as the context's level says. Since ABI version 0.1.
 *
 * @pre `members` is readable for `count` numbers, and `made` is writable.
 */
int towline_comm_create(struct towline_context_t context,
                        uint32_t id,
                        const uint32_t *members,
                        size_t count,
                        uint32_t rank,
                        struct towline_comm_t *made);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TOWLINE_H */
