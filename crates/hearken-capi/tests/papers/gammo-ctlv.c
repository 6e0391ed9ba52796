/* Gammo, Brecht, Shukla and Pariag, Section 4: changes of interest in one call. */
#include <hearken/papers/epoll_ctlv.h>

#include "server.h"

#define MAX_EVENTS 64

int main(void) {
    struct epoll_event events[MAX_EVENTS];
    struct epoll_event_ctlv changes[MAX_EVENTS];
    int epfd = epoll_create(16), listenfd = StartListening(), count = 1;
    memset(changes, 0, sizeof changes);
    changes[0].op = EPOLL_CTL_ADD;
    changes[0].event.events = EPOLLIN;
    changes[0].event.data.fd = listenfd;
    while (1) {
        int ready;
        if (epoll_ctlv(epfd, EPOLL_CTLV, count, changes) < 0) fail("epoll_ctlv");
        count = 0;
        ready = epoll_wait(epfd, events, MAX_EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listenfd) {
                int newfd = accept(listenfd, NULL, NULL);
                if (newfd < 0) continue;
                SetNonblocking(newfd);
                changes[count].op = EPOLL_CTL_ADD;
                changes[count].event.events = EPOLLIN;
                changes[count++].event.data.fd = newfd;
            } else if (!Echo(fd)) {
                close(fd);
            }
        }
    }
}
