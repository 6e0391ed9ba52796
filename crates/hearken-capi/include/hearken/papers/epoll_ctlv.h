/*
 * epoll_ctlv of L. Gammo, T. Brecht, A. Shukla and D. Pariag: Comparing and evaluating epoll, select,
 * and poll event mechanisms (OLS 2004), Section 4. It needs no library. The paper prints no
 * signature. This is that of the authors' server.
 */
#ifndef HEARKEN_PAPERS_EPOLL_CTLV_H
#define HEARKEN_PAPERS_EPOLL_CTLV_H

#include <errno.h>
#include <sys/epoll.h>

/* The operation of a call with several changes. */
#define EPOLL_CTLV 4

struct epoll_event_ctlv {
    struct epoll_event event; /* data.fd is the descriptor */
    int op;                   /* EPOLL_CTL_ADD, EPOLL_CTL_MOD or EPOLL_CTL_DEL */
    long res;                 /* 0, or a negative error number */
};

/* Makes COUNT changes in order and stores the result of each. Returns 0, or -1 with the error of the
 * first that failed. OP is EPOLL_CTLV. Linux has no such call: each change costs one. The mechanism
 * epoll-batched makes several changes in one call. */
static inline int epoll_ctlv(int epfd, int op, int count, struct epoll_event_ctlv *events) {
    int error = 0;
    if (op != EPOLL_CTLV || count < 0) {
        errno = EINVAL;
        return -1;
    }
    for (int i = 0; i < count; i++) {
        struct epoll_event event = events[i].event;
        events[i].res = epoll_ctl(epfd, events[i].op, event.data.fd, &event) < 0 ? -errno : 0;
        if (error == 0) error = (int)-events[i].res;
    }
    if (error == 0) return 0;
    errno = error;
    return -1;
}

#endif
