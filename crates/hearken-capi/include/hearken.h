/*
 * Hearken: event delivery over every mechanism of Linux.
 *
 * A poller watches descriptors of the caller. It reports those that are ready, with 64 bits of the
 * caller's data. Any thread may change the set, also while another thread waits. One thread at a
 * time waits. With rt-signal, signal-per-fd, epoll-batched, uring-poll and kernel-queue, it is the
 * thread that opened the poller.
 *
 * Functions that return an int return a negative error number on failure, such as -EINVAL for a
 * null pointer or an invalid argument, or -EIO for an internal error. None of them is
 * async-signal-safe except hearken_wake.
 */
#ifndef HEARKEN_H
#define HEARKEN_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hearken hearken;

/* Interest and readiness, with the values of poll(2) where it has them. */
#define HEARKEN_READ 1u        /* a read, receive or accept returns immediately */
#define HEARKEN_PRIORITY 2u    /* priority data, such as urgent data of TCP */
#define HEARKEN_WRITE 4u       /* a write or send returns immediately, or a connect has ended */
#define HEARKEN_ERROR 8u       /* reported only: an error is pending */
#define HEARKEN_HANGUP 16u     /* reported only: both directions have ended */
#define HEARKEN_READ_CLOSED 32u /* reported only: the peer has ended its sending side */

/* Flags of hearken_open. */
#define HEARKEN_LEVEL 1u /* level-triggered, whatever the mechanism */

/* Results of hearken_trigger. */
#define HEARKEN_TRIGGER_LEVEL 0    /* a descriptor is in every batch while it is ready */
#define HEARKEN_TRIGGER_EDGE 1     /* after each arrival: read and write until EAGAIN */
#define HEARKEN_TRIGGER_ONE_SHOT 2 /* once, until the next hearken_set */

struct hearken_event {
    uint64_t data;
    uint32_t events;
    uint32_t reserved;
};

struct hearken_counters {
    uint64_t waits;
    uint64_t empty_waits;
    uint64_t events;
    uint64_t spurious;
    uint64_t changes;
    uint64_t overflows;
    uint64_t signals;
    uint64_t calls;
};

/*
 * Opens a poller over the mechanism that EVENTS names, such as "epoll-edge" or
 * "rt-signal:dequeue=one". "auto" measures and selects one. If EVENTS is null, the environment
 * variable HEARKEN_EVENTS selects it, or "auto" if there is none. Stores the poller in OUT.
 * -EINVAL for an unknown name, option or flag. Otherwise the error of the kernel that refuses it.
 */
int hearken_open(const char *events, unsigned flags, hearken **out);

/* Returns the reason for which the last hearken_open of this thread failed, or "". It is valid until
 * the next hearken_open of this thread. */
const char *hearken_open_error(void);

/* Closes a poller that no other thread uses. Null is ignored. */
void hearken_close(hearken *poller);

/*
 * Adds FD or replaces its interest, which may be 0, and its data. Rearms a one-shot mechanism.
 * FD must be removed before it is closed. -EPERM for a file that the mechanism cannot watch,
 * -EOPNOTSUPP for priority data that it cannot report (uring-poll, kernel-queue).
 */
int hearken_set(hearken *poller, int fd, uint32_t events, uint64_t data);

/* Removes FD. No later wait reports it. -ENOENT if it was not added. */
int hearken_remove(hearken *poller, int fd);

/* Reports that a call on FD failed with EAGAIN since the last wait, which may save a check. */
int hearken_would_block(hearken *poller, int fd, uint32_t events);

/*
 * Waits for at most MAX events. Returns their number, or 0 after the timeout or hearken_wake. A null
 * TIMEOUT waits indefinitely. MASK, unless it is null, replaces the thread's signal mask during the
 * wait. -EINTR after a signal handler, -EBUSY if another thread waits, -EPERM if the mechanism
 * belongs to another thread.
 */
int hearken_wait(hearken *poller, struct hearken_event *events, int max,
                 const struct timespec *timeout, const sigset_t *mask);

/* Ends the wait of another thread, or the next wait. */
int hearken_wake(hearken *poller);

/*
 * Returns a descriptor that another event loop can watch. It becomes readable when a wait would
 * return events, once a wait with a timeout of 0 has returned none. -EOPNOTSUPP if the mechanism has
 * none.
 */
int hearken_fd(const hearken *poller);

/* Returns one of HEARKEN_TRIGGER_*. */
int hearken_trigger(const hearken *poller);

/* Stores the counters since the poller was opened. SIZE is sizeof(struct hearken_counters). */
int hearken_counters(const hearken *poller, struct hearken_counters *out, size_t size);

/* Returns the names of all mechanisms, which end with a null pointer. */
const char *const *hearken_mechanisms(void);

#ifdef __cplusplus
}
#endif

#endif
