/* Liu and Chen, Figure 4: several signals in one call. */
#define _GNU_SOURCE
#include <hearken/papers/sigtimedwait4.h>

#include "signals.h"

int main(void) {
    sigset_t signals;
    siginfo_t infos[16];
    int sig, i;
#ifndef AS_PRINTED
    struct timespec ts = {5, 0};
#endif
    BlockSignals(&signals);
    listenfd = StartListening();
    RaiseSignals(listenfd);
    AcceptAll();
    while (1) {
#ifdef AS_PRINTED
        if ((sig = sigtimedwait4(&signals, infos, 16, &ts) > 0)) {
#else
        if ((sig = sigtimedwait4(&signals, infos, 16, &ts)) > 0) {
#endif
            for (i = 0; i < sig; i++)
                if (infos[i].si_signo == SIGRTMIN) HandleEvent(infos[i].si_fd, infos[i].si_band);
        }
    }
}
