/* Banga, Mogul and Druschel, Figure 3: an event loop over the new interface. */
#include <hearken/papers/banga.h>

#include "server.h"

#define MAX_EVENTS 64

struct event_descr_t event_array[MAX_EVENTS];
int listenfd;

void InvokeReadHandler(int fd) {
    if (Echo(fd)) return;
    declare_interest(fd, 0, NULL);
    close(fd);
}

void InvokeWriteHandler(int fd) {
    (void)fd;
}

void InvokeAcceptHandler(int fd) {
    int newfd, statemask;

    while ((newfd = accept(fd, NULL, NULL)) >= 0) {
        SetNonblocking(newfd);
        /* Over a level-triggered mechanism, a writable descriptor would end every wait. */
        if (declare_interest(newfd, EVENT_READ, &statemask) < 0) fail("declare_interest");
        if (statemask & EVENT_READ) InvokeReadHandler(newfd);
    }
}

int ListeningOn(int fd) {
    return fd == listenfd;
}

void DoTimeoutProcessing(void) {
}

void main_loop(struct timeval timeout) {
    int i, n;

    while (1) {
#ifdef AS_PRINTED
        n = get_next_event(MAX_EVENTS, &event_array, &timeout);
#else
        n = get_next_event(MAX_EVENTS, event_array, &timeout);
#endif
        if (n < 1) {
            DoTimeoutProcessing();
            continue;
        }
        for (i = 0; i < n; i++) {
            if (event_array[i].mask & EVENT_READ) {
#ifdef AS_PRINTED
                if (ListeningOn(event_array[i].fd)
#else
                if (ListeningOn(event_array[i].fd))
#endif
                    InvokeAcceptHandler(event_array[i].fd);
                else
                    InvokeReadHandler(event_array[i].fd);
            }
            if (event_array[i].mask & EVENT_WRITE) InvokeWriteHandler(event_array[i].fd);
        }
    }
}

int main(void) {
    struct timeval timeout = {5, 0};
    listenfd = StartListening();
    if (declare_interest(listenfd, EVENT_READ, NULL) < 0) fail("declare_interest");
    main_loop(timeout);
}
