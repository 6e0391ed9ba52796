/* libuv: one uv_poll_t per descriptor. libuv supports only level-triggered epoll. */
#include "peer.h"
#include <uv.h>

static uv_loop_t loop;
static int remaining;

static void ready(uv_poll_t *handle, int status, int events) {
    (void)status, (void)events;
    remaining -= read_byte((int)(intptr_t)handle->data);
}

static const char *open_peer(void) {
    static char version[64];
    if (uv_loop_init(&loop)) die("uv_loop_init");
    uv_poll_t *handles = calloc(descriptors, sizeof *handles);
    for (int i = 0; i < descriptors; i++) {
        if (uv_poll_init(&loop, &handles[i], readers[i])) die("uv_poll_init");
        handles[i].data = (void *)(intptr_t)i;
        if (uv_poll_start(&handles[i], UV_READABLE, ready)) die("uv_poll_start");
    }
    snprintf(version, sizeof version, "libuv %s", uv_version_string());
    return version;
}

static void dispatch(int events) {
    for (remaining = events; remaining > 0;) uv_run(&loop, UV_RUN_ONCE);
}
