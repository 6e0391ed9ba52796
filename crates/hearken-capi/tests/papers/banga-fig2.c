/* Banga, Mogul and Druschel, Figure 2: an event loop over select(2). */
#include <sys/select.h>
#include <sys/time.h>

#include "server.h"

fd_set InterestRead, InterestWrite;
int maxfd, listenfd;

void InvokeAcceptHandler(int fd) {
    int newfd = accept(fd, NULL, NULL);
    if (newfd < 0) return;
    SetNonblocking(newfd);
    FD_SET(newfd, &InterestRead);
    if (newfd > maxfd) maxfd = newfd;
}

void InvokeReadHandler(int fd) {
    if (Echo(fd)) return;
    FD_CLR(fd, &InterestRead);
    close(fd);
}

void InvokeWriteHandler(int fd) {
    FD_CLR(fd, &InterestWrite);
}

void DoTimeoutProcessing(void) {
}

void main_loop(struct timeval timeout) {
    fd_set readable, writable;
    int i, numready;

    while (1) {
        struct timeval remaining = timeout;
        readable = InterestRead;
        writable = InterestWrite;
#ifdef AS_PRINTED
        numready = select(maxfd, &readable, &writable, NULL, &remaining);
#else
        numready = select(maxfd + 1, &readable, &writable, NULL, &remaining);
#endif
        if (numready < 1) {
            DoTimeoutProcessing();
            continue;
        }
        for (i = 0; i <= maxfd; i++) {
            if (FD_ISSET(i, &readable)) {
                if (i == listenfd)
                    InvokeAcceptHandler(i);
                else
                    InvokeReadHandler(i);
            }
            if (FD_ISSET(i, &writable)) InvokeWriteHandler(i);
        }
    }
}

int main(void) {
    struct timeval timeout = {5, 0};
    maxfd = listenfd = StartListening();
    FD_SET(listenfd, &InterestRead);
    main_loop(timeout);
}
