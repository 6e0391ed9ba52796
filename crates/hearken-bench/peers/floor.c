/* The write and the read alone: what every peer in C pays besides its dispatch. */
#include "peer.h"

static const char *open_peer(void) { return "write and read, in C"; }

static void dispatch(int events) {
    for (int i = 0; i < events; i++)
        if (!take(order[base + i])) die("read");
}
