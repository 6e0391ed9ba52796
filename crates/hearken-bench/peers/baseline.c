/* Baseline: the write and the read without event dispatch. */
#include "peer.h"

static const char *open_peer(void) { return "write and read, in C"; }

static void dispatch(int events) {
    for (int i = 0; i < events; i++)
        if (!read_byte(order[base + i])) die("read");
}
