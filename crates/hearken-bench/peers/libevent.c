/* libevent: persistent read events, level- or edge-triggered, with the method that VARIANT names. */
#include "peer.h"
#include <event2/event.h>
#include <sys/select.h>

static struct event_base *loop;
static int remaining;

static void ready(evutil_socket_t fd, short what, void *index) {
    (void)fd, (void)what;
    remaining -= read_byte((int)(intptr_t)index);
}

static const char *open_peer(void) {
    static char version[64];
    static const char *methods[] = {"epoll", "poll", "select"};
    int edge = !strcmp(variant, "epoll-edge");
    const char *method = strncmp(variant, "epoll", 5) ? variant : "epoll";
    if (!strcmp(method, "select") && 2 * descriptors + 16 > FD_SETSIZE)
        unsupported("libevent select() supports only descriptors up to 1023");
    struct event_config *config = event_config_new();
    for (int i = 0; i < 3; i++)
        if (strcmp(methods[i], method)) event_config_avoid_method(config, methods[i]);
    loop = event_base_new_with_config(config);
    if (!loop || strcmp(event_base_get_method(loop), method)) unsupported("libevent was built without this method");
    for (int i = 0; i < descriptors; i++) {
        short flags = EV_READ | EV_PERSIST | (edge ? EV_ET : 0);
        struct event *e = event_new(loop, readers[i], flags, ready, (void *)(intptr_t)i);
        if (!e || event_add(e, NULL)) die("event_add");
    }
    snprintf(version, sizeof version, "libevent %s", event_get_version());
    return version;
}

static void dispatch(int events) {
    for (remaining = events; remaining > 0;)
        if (event_base_loop(loop, EVLOOP_ONCE) < 0) die("event_base_loop");
}
