/* Banga, Mogul and Druschel, Sections 4 and 9: several threads wait for the same connections. The
 * argument is "processwide", or "wakeup-one" for interest of each thread. */
#include <hearken/papers/banga.h>
#include <pthread.h>

#include "server.h"

static int listenfd, each_thread;

static void *serve(void *unused) {
    event_descr_t events[8];
    if (each_thread && declare_interest(listenfd, EVENT_READ, NULL) < 0) fail("declare_interest");
    while (1) {
        int count = get_next_event(8, events, NULL);
        if (count < 0 && errno != EINTR) fail("get_next_event");
        for (int i = 0; i < count; i++) {
            int newfd, state;
            if (events[i].fd != listenfd) {
                if (Echo(events[i].fd)) continue;
                declare_interest(events[i].fd, 0, NULL);
                close(events[i].fd);
                continue;
            }
            while ((newfd = accept(listenfd, NULL, NULL)) >= 0) {
                SetNonblocking(newfd);
                if (declare_interest(newfd, EVENT_READ, &state) < 0) fail("declare_interest");
            }
        }
    }
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    each_thread = argc > 1 && strcmp(argv[1], "wakeup-one") == 0;
    listenfd = StartListening();
    if (each_thread && hearken_wakeup_one(listenfd) < 0) fail("hearken_wakeup_one");
    for (int i = 0; i < 3; i++) {
        /* One thread starts before the declaration, and two after it. */
        if (i == 1 && !each_thread && declare_processwide_interest(listenfd, EVENT_READ, NULL) < 0)
            fail("declare_processwide_interest");
        if (pthread_create(&thread, NULL, serve, NULL) != 0) fail("pthread_create");
    }
    pthread_join(thread, NULL);
}
