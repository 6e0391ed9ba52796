/* An echo server. The argument names the mechanism. It prints its port, and ends with SIGTERM. */
#include <arpa/inet.h>
#include <errno.h>
#include <hearken.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile sig_atomic_t stopped;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static int fail(const char *what, int error) {
    fprintf(stderr, "echo: %s: %s\n", what, strerror(error));
    return 1;
}

/* Echoes what has arrived. Returns 0 when the connection has ended. */
static int echo(hearken *poller, int client) {
    char bytes[4096];
    for (;;) {
        ssize_t count = recv(client, bytes, sizeof bytes, MSG_DONTWAIT);
        if (count < 0 && errno == EAGAIN) {
            hearken_would_block(poller, client, HEARKEN_READ);
            return 1;
        }
        /* A client that does not read its echo blocks the others: an example, not a server. */
        if (count <= 0 || send(client, bytes, (size_t)count, MSG_NOSIGNAL) != count) return 0;
    }
}

int main(int argc, char **argv) {
    hearken *poller;
    int error = hearken_open(argc > 1 ? argv[1] : NULL, 0, &poller);
    if (error < 0) {
        fprintf(stderr, "echo: %s\n", hearken_open_error());
        return 1;
    }
    /* SIGTERM is blocked except during waits, so that none is missed. */
    sigset_t blocked, during_wait;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    signal(SIGTERM, stop);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    sigprocmask(SIG_BLOCK, NULL, &during_wait);
    sigdelset(&during_wait, SIGTERM);

    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) < 0 ||
        listen(listener, 128) < 0 || getsockname(listener, (struct sockaddr *)&address, &length) < 0)
        return fail("listen", errno);
    error = hearken_set(poller, listener, HEARKEN_READ, (uint64_t)listener);
    if (error < 0) return fail("hearken_set", -error);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);

    while (!stopped) {
        struct hearken_event events[64];
        int count = hearken_wait(poller, events, 64, NULL, &during_wait);
        if (count < 0 && count != -EINTR) return fail("hearken_wait", -count);
        for (int i = 0; i < count; i++) {
            int fd = (int)events[i].data;
            if (fd == listener) {
                int client;
                while ((client = accept(listener, NULL, NULL)) >= 0)
                    hearken_set(poller, client, HEARKEN_READ, (uint64_t)client);
                hearken_would_block(poller, listener, HEARKEN_READ);
            } else if (!echo(poller, fd)) {
                hearken_remove(poller, fd);
                close(fd);
                continue;
            }
            if (hearken_trigger(poller) == HEARKEN_TRIGGER_ONE_SHOT)
                hearken_set(poller, fd, HEARKEN_READ, (uint64_t)fd);
        }
    }
    hearken_close(poller);
    close(listener);
    return 0;
}
