/* Descriptors that raise the real-time signal SIGRTMIN. Chandra and Mosberger, Figure 1, and Liu and
 * Chen, Figures 2 and 3, print these statements. */
#ifndef SIGNALS_H
#define SIGNALS_H

#include <poll.h>

#include "server.h"

static int listenfd;

static inline void RaiseSignals(int sd) {
    if (fcntl(sd, F_SETOWN, getpid()) < 0 || fcntl(sd, F_SETSIG, SIGRTMIN) < 0 ||
        fcntl(sd, F_SETFL, O_ASYNC | O_NONBLOCK | O_RDWR) < 0)
        fail("fcntl");
}

/* Accepts what is waiting: one signal may stand for several connections. */
static inline void AcceptAll(void) {
    int sd;
#if defined AS_PRINTED && defined ELLIPSIS
    while ((sd = accept(listenfd, ...)) >= 0) {
#else
    while ((sd = accept(listenfd, NULL, NULL)) >= 0) {
#endif
        RaiseSignals(sd);
        /* Data that arrived before raised no signal. */
        if (!Echo(sd)) close(sd);
    }
}

static inline void HandleEvent(int fd, long band) {
    if (fd == listenfd)
        AcceptAll();
    else if ((band & (POLLIN | POLLHUP | POLLERR)) && !Echo(fd))
        close(fd);
}

static inline void BlockSignals(sigset_t *signals) {
    sigemptyset(signals);
    sigaddset(signals, SIGRTMIN);
#if defined AS_PRINTED && defined SEMICOLON
    sigaddset(signals, SIGIO)
#else
    sigaddset(signals, SIGIO);
#endif
    if (sigprocmask(SIG_BLOCK, signals, NULL) < 0) fail("sigprocmask");
}

#endif
