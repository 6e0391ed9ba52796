/* libev: one read watcher per descriptor, with the backend that VARIANT names. */
#include "peer.h"
#include <ev.h>

static struct ev_loop *loop;
static int remaining;

static void ready(struct ev_loop *l, ev_io *w, int events) {
    (void)l, (void)events;
    remaining -= read_byte((int)(intptr_t)w->data);
}

static const char *open_peer(void) {
    static char version[64];
    unsigned backend = !strcmp(variant, "epoll-level") ? EVBACKEND_EPOLL
                       : !strcmp(variant, "poll")      ? EVBACKEND_POLL
                                                       : EVBACKEND_SELECT;
    loop = ev_loop_new(backend | EVFLAG_NOENV);
    if (!loop || ev_backend(loop) != backend) unsupported("libev was built without this backend");
    ev_io *watchers = calloc(descriptors, sizeof *watchers);
    for (int i = 0; i < descriptors; i++) {
        ev_io_init(&watchers[i], ready, readers[i], EV_READ);
        watchers[i].data = (void *)(intptr_t)i;
        ev_io_start(loop, &watchers[i]);
    }
    snprintf(version, sizeof version, "libev %d.%d", ev_version_major(), ev_version_minor());
    return version;
}

static void dispatch(int events) {
    for (remaining = events; remaining > 0;) ev_run(loop, EVRUN_ONCE);
}
