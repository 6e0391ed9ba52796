/*
 * /dev/poll of Solaris, and of N. Provos and C. Lever: Scalable network I/O in Linux (USENIX 2000).
 * Programs that include this as <sys/devpoll.h> run with `hearken run --provide devpoll`, which
 * provides the device.
 */
#ifndef HEARKEN_PAPERS_SYS_DEVPOLL_H
#define HEARKEN_PAPERS_SYS_DEVPOLL_H

#include <poll.h>
/* Solaris declares ioctl in <unistd.h>. */
#include <sys/ioctl.h>

/* An event that removes the descriptor from the set. */
#ifndef POLLREMOVE
#define POLLREMOVE 0x0800
#endif

/* The argument of DP_POLL. */
struct dvpoll {
    struct pollfd *dp_fds; /* space for the results */
    int dp_nfds;           /* number of results that fit */
    int dp_timeout;        /* milliseconds, or -1 */
};

typedef struct dvpoll dvpoll_t;

#define DPIOC (0xD0 << 8)
#define DP_POLL (DPIOC | 1)     /* waits for events: a pointer to struct dvpoll */
#define DP_ISPOLLED (DPIOC | 2) /* returns whether a pollfd is in the set, and its events */

#endif
