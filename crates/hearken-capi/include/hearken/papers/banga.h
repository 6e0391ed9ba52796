/*
 * The event interface of G. Banga, J. Mogul and P. Druschel: A scalable and explicit event delivery
 * mechanism for UNIX (USENIX 1999), Sections 4 and 9. Link with -lhearken. The environment variable
 * HEARKEN_EVENTS selects the mechanism, or "auto" if there is none.
 *
 * Each thread has a queue of events. The functions return -1 and set errno on failure. Interest in a
 * descriptor ends when a thread declares an interest of 0 or declares it again. A descriptor that is
 * closed without that may be reported once more if its number is used again.
 */
#ifndef HEARKEN_PAPERS_BANGA_H
#define HEARKEN_PAPERS_BANGA_H

#include <errno.h>
#include <sys/time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EVENT_READ 0x1
#define EVENT_WRITE 0x2
#define EVENT_EXCEPT 0x4

/* The paper uses the name as a type in Section 4 and as a tag in Figure 3. */
typedef struct event_descr_t {
    int fd;
    unsigned mask;
} event_descr_t;

int hearken_declare_interest(int fd, int interestmask, int *statemask);
int hearken_declare_processwide_interest(int fd, int interestmask, int *statemask);
int hearken_get_next_event(int array_max, event_descr_t *ev_array, const struct timeval *timeout);

/* The equivalent of the socket option SO_WAKEUP_ONE. Of the threads that then declare interest in FD,
 * only one receives an event, if the mechanism can select one. */
int hearken_wakeup_one(int fd);

static inline int hearken_papers_result(int result) {
    if (result >= 0) return result;
    errno = -result;
    return -1;
}

/* Declares the interest of this thread, or revokes it if INTERESTMASK is 0. Stores the current state
 * of the descriptor in STATEMASK, unless it is null. */
static inline int declare_interest(int fd, int interestmask, int *statemask) {
    return hearken_papers_result(hearken_declare_interest(fd, interestmask, statemask));
}

/* Declares interest for all existing and future threads, one of which receives an event. */
static inline int declare_processwide_interest(int fd, int interestmask, int *statemask) {
    return hearken_papers_result(
        hearken_declare_processwide_interest(fd, interestmask, statemask));
}

/* Waits for at most ARRAY_MAX events. Returns their number, or 0 after the timeout. A null TIMEOUT
 * waits indefinitely. EINTR after a signal handler. */
static inline int get_next_event(int array_max, event_descr_t *ev_array, struct timeval *timeout) {
    return hearken_papers_result(hearken_get_next_event(array_max, ev_array, timeout));
}

#ifdef __cplusplus
}
#endif

#endif
