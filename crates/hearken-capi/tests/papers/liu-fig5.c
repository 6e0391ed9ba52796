/* Liu and Chen, Figure 5: an event loop over /dev/poll. */
#include <sys/devpoll.h>
#include <sys/ioctl.h>

#include "server.h"

#define MAX_FDS 64

int main(void) {
    struct pollfd fds, results[MAX_FDS];
    struct dvpoll dvp;
    int wfd, num_event, i, listenfd;
    wfd = open("/dev/poll", O_RDWR);
    if (wfd < 0) fail("/dev/poll");
    fds.fd = listenfd = StartListening();
    fds.events = POLLIN;
    if (write(wfd, &fds, sizeof fds) != sizeof fds) fail("write");
    while (1) {
        dvp.dp_fds = results;
#ifdef AS_PRINTED
        dvp.dp_nfds = 0;
#else
        dvp.dp_nfds = MAX_FDS;
#endif
        dvp.dp_timeout = -1;
        num_event = ioctl(wfd, DP_POLL, &dvp);
        if (num_event < 0) fail("DP_POLL");
        for (i = 0; i < num_event; i++) {
            fds.fd = results[i].fd;
            fds.events = POLLIN;
            if (results[i].fd == listenfd) {
                fds.fd = accept(listenfd, NULL, NULL);
                if (fds.fd < 0) continue;
                SetNonblocking(fds.fd);
            } else if (!Echo(results[i].fd)) {
                fds.events = POLLREMOVE;
            } else {
                continue;
            }
            if (write(wfd, &fds, sizeof fds) != sizeof fds) fail("write");
            if (fds.events == POLLREMOVE) close(fds.fd);
        }
    }
}
