/* Hearken's C library, with the mechanism that VARIANT names. `scripts/install-c` installs it. */
#include "peer.h"
#include <hearken.h>

#define MAX_EVENTS 1024

static hearken *poller;

static const char *open_peer(void) {
    if (hearken_open(variant, 0, &poller) < 0) unsupported(hearken_open_error());
    for (int i = 0; i < descriptors; i++)
        if (hearken_set(poller, readers[i], HEARKEN_READ, (uint64_t)i) < 0) die("hearken_set");
    return "hearken, C library";
}

static void dispatch(int events) {
    struct hearken_event batch[MAX_EVENTS];
    while (events > 0) {
        int count = hearken_wait(poller, batch, MAX_EVENTS, NULL, NULL);
        if (count < 0) die("hearken_wait");
        for (int i = 0; i < count; i++) events -= read_byte((int)batch[i].data);
    }
}
