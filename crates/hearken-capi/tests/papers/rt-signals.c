/* Chandra and Mosberger, Figures 1 and 2, and Liu and Chen, Figures 2 and 3: an event loop over
 * real-time signals. */
#define _GNU_SOURCE
#include "signals.h"

int main(void) {
    sigset_t signals;
    siginfo_t siginfo;
    BlockSignals(&signals);
    listenfd = StartListening();
    RaiseSignals(listenfd);
    AcceptAll();
    while (1) {
        int signum = sigwaitinfo(&signals, &siginfo);
        /* SIGIO means that the queue of signals overflowed, which this load does not cause. */
        if (signum == SIGRTMIN) HandleEvent(siginfo.si_fd, siginfo.si_band);
    }
}
