/*
 * sigtimedwait4 of N. Provos, C. Lever and S. Tweedie: Analyzing the overload behavior of a simple
 * web server (ALS 2000), Section 4. It needs no library.
 *
 * The descriptors of the signals are in si_fd and their events in si_band, if the signal is set with
 * F_SETSIG of fcntl(2). That needs _GNU_SOURCE.
 */
#ifndef HEARKEN_PAPERS_SIGTIMEDWAIT4_H
#define HEARKEN_PAPERS_SIGTIMEDWAIT4_H

#include <errno.h>
#include <signal.h>
#include <time.h>

/* Waits for a signal of SET and takes up to NSIGINFOS pending ones. Returns their number, or -1 with
 * the errors of sigtimedwait(2): EAGAIN after the timeout, EINTR after a handler. A null TIMEOUT
 * waits indefinitely. Linux has no such call: each signal costs one. */
static inline int sigtimedwait4(const sigset_t *set, siginfo_t *infos, int nsiginfos,
                                const struct timespec *timeout) {
    const struct timespec no_time = {0, 0};
    int count = 0;
    if (nsiginfos < 1) {
        errno = EINVAL;
        return -1;
    }
    while (count < nsiginfos && sigtimedwait(set, &infos[count], count > 0 ? &no_time : timeout) >= 0)
        count++;
    return count > 0 ? count : -1;
}

#endif
