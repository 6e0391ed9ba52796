/* Liu and Chen, Figure 1: an event loop over poll(2). */
#include <poll.h>

#include "server.h"

#define MAX_FDS 64

struct pollfd fds[MAX_FDS];
int nfds;

int main(void) {
    int num_event, i;
    fds[0].fd = StartListening();
    fds[0].events = POLLIN;
    nfds = 1;
    while (1) {
        num_event = poll(fds, nfds, -1);
#ifdef AS_PRINTED
        for (i = 0; i < num_event; i++) {
#else
        for (i = 0; i < nfds && num_event > 0; i++) {
#endif
            if (fds[i].revents == 0) continue;
            num_event--;
            if (i == 0) {
                int newfd = accept(fds[0].fd, NULL, NULL);
                if (newfd < 0 || nfds == MAX_FDS) continue;
                SetNonblocking(newfd);
                fds[nfds].fd = newfd;
                fds[nfds].events = POLLIN;
                fds[nfds].revents = 0;
                nfds++;
            } else if (!Echo(fds[i].fd)) {
                close(fds[i].fd);
                fds[i] = fds[nfds - 1];
                nfds--;
                i--;
            }
        }
    }
}
