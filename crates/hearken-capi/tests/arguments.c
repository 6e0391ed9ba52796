/* Null pointers and invalid arguments are errors. Prints nothing and returns 0 if they are. */
#include <errno.h>
#include <hearken.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(condition)                                                \
    do {                                                                \
        if (!(condition)) {                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);     \
            exit(1);                                                    \
        }                                                               \
    } while (0)

static hearken *poller;
static int pair[2];

static void *change(void *unused) {
    (void)unused;
    usleep(5000);
    CHECK(hearken_set(poller, pair[0], HEARKEN_READ, 9) == 0);
    CHECK(write(pair[1], "x", 1) == 1);
    return NULL;
}

int main(void) {
    struct hearken_event events[4];
    struct hearken_counters counters;
    struct timespec now = {0, 0}, negative = {-1, 0}, too_many = {0, 1000000000};

    CHECK(hearken_open("poll", 0, NULL) == -EINVAL);
    CHECK(hearken_open("poll", 2, &poller) == -EINVAL && poller == NULL);
    CHECK(hearken_open("pole", 0, &poller) == -EINVAL && poller == NULL);
    CHECK(strstr(hearken_open_error(), "unknown mechanism 'pole'") != NULL);
    CHECK(hearken_open("poll:no=option", 0, &poller) == -EINVAL);
    CHECK(hearken_open("\xff", 0, &poller) == -EINVAL);
    setenv("HEARKEN_EVENTS", "nothing", 1);
    CHECK(hearken_open(NULL, 0, &poller) == -EINVAL);
    setenv("HEARKEN_EVENTS", "epoll-level", 1);
    CHECK(hearken_open(NULL, 0, &poller) == 0 && *hearken_open_error() == '\0');
    CHECK(hearken_fd(poller) >= 0 && hearken_trigger(poller) == HEARKEN_TRIGGER_LEVEL);

    hearken_close(NULL);
    CHECK(hearken_set(NULL, 0, HEARKEN_READ, 0) == -EINVAL);
    CHECK(hearken_remove(NULL, 0) == -EINVAL && hearken_wake(NULL) == -EINVAL);
    CHECK(hearken_would_block(NULL, 0, 0) == -EINVAL && hearken_fd(NULL) == -EINVAL);
    CHECK(hearken_trigger(NULL) == -EINVAL);
    CHECK(hearken_counters(NULL, &counters, sizeof counters) == -EINVAL);
    CHECK(hearken_counters(poller, NULL, sizeof counters) == -EINVAL);
    CHECK(hearken_wait(NULL, events, 4, &now, NULL) == -EINVAL);
    CHECK(hearken_wait(poller, NULL, 4, &now, NULL) == -EINVAL);
    CHECK(hearken_wait(poller, events, 0, &now, NULL) == -EINVAL);
    CHECK(hearken_wait(poller, events, -1, &now, NULL) == -EINVAL);
    CHECK(hearken_wait(poller, events, 4, &negative, NULL) == -EINVAL);
    CHECK(hearken_wait(poller, events, 4, &too_many, NULL) == -EINVAL);
    CHECK(hearken_wait(poller, events, 4, &now, NULL) == 0);

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    CHECK(hearken_set(poller, -1, HEARKEN_READ, 0) == -EBADF);
    CHECK(hearken_set(poller, 1 << 20, HEARKEN_READ, 0) == -EBADF);
    CHECK(hearken_set(poller, pair[0], HEARKEN_HANGUP, 0) == -EINVAL);
    CHECK(hearken_set(poller, pair[0], 256, 0) == -EINVAL);
    CHECK(hearken_remove(poller, pair[0]) == -ENOENT);

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, change, NULL) == 0);
    CHECK(hearken_wait(poller, events, 4, NULL, NULL) == 1);
    CHECK(events[0].data == 9 && events[0].events == HEARKEN_READ);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(hearken_wake(poller) == 0);
    CHECK(hearken_remove(poller, pair[0]) == 0);
    CHECK(hearken_wait(poller, events, 4, NULL, NULL) == 0);

    memset(&counters, 0xff, sizeof counters);
    CHECK(hearken_counters(poller, &counters, 8) == 0);
    CHECK(counters.waits >= 3 && counters.calls == UINT64_MAX);
    hearken_close(poller);

    const char *const *names = hearken_mechanisms();
    for (; *names != NULL; names++) {
        hearken *opened;
        /* Some need privileges. */
        if (hearken_open(*names, HEARKEN_LEVEL, &opened) < 0) {
            CHECK(*hearken_open_error() != '\0');
            continue;
        }
        CHECK(hearken_set(opened, pair[0], HEARKEN_READ, 3) == 0);
        while (hearken_wait(opened, events, 4, NULL, NULL) != 1) {
        }
        CHECK(events[0].data == 3 && events[0].events == HEARKEN_READ);
        hearken_close(opened);
    }
    return 0;
}
