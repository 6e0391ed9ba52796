/* What programs expect of epoll, poll and select. It prints the line of the first check that fails. The
 * argument contains e if the mechanism is edge-triggered, and n if it can watch an epoll instance. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

static int epfd, edges, nests;

static void pair(int fds[2]) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
}

static int control(int op, int fd, unsigned events, int data) {
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = events;
    event.data.fd = data;
    return epoll_ctl(epfd, op, fd, &event);
}

/* Waits for one event. Returns its data, or -1 after the timeout. */
static int next(int timeout, unsigned *events) {
    struct epoll_event event;
    int count;
    /* A ring that was closed may interrupt its thread. */
    do count = epoll_wait(epfd, &event, 1, timeout);
    while (count < 0 && errno == EINTR);
    CHECK(count >= 0);
    if (count == 0) return -1;
    if (events) *events = event.events;
    return event.data.fd;
}

static int check_list(struct pollfd *list, int timeout) {
    int count;
    do count = poll(list, 3, timeout);
    while (count < 0 && errno == EINTR);
    return count;
}

static void level(void) {
    int fds[2];
    unsigned events = 0;
    char byte;
    pair(fds);
    CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN, 7) == 0);
    CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN, 7) == -1 && errno == EEXIST);
    CHECK(next(0, NULL) == -1);
    CHECK(write(fds[1], "x", 1) == 1);
    CHECK(next(1000, &events) == 7 && events == EPOLLIN);
    CHECK(next(0, NULL) == 7);
    CHECK(read(fds[0], &byte, 1) == 1);
    CHECK(next(0, NULL) == -1);
    CHECK(control(EPOLL_CTL_MOD, fds[0], EPOLLIN | EPOLLOUT, 8) == 0);
    CHECK(next(1000, &events) == 8 && events == EPOLLOUT);
    CHECK(control(EPOLL_CTL_MOD, fds[0], EPOLLIN | EPOLLRDHUP, 9) == 0);
    CHECK(shutdown(fds[1], SHUT_WR) == 0);
    CHECK(next(1000, &events) == 9 && events == (EPOLLIN | EPOLLRDHUP));
    CHECK(control(EPOLL_CTL_DEL, fds[0], 0, 0) == 0);
    CHECK(control(EPOLL_CTL_DEL, fds[0], 0, 0) == -1 && errno == ENOENT);
    CHECK(next(0, NULL) == -1);
    close(fds[0]);
    close(fds[1]);
    CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN, 7) == -1 && errno == EBADF);
    CHECK(control(EPOLL_CTL_ADD, epfd, EPOLLIN, 7) == -1 && errno == EINVAL);
}

static void one_shot_and_edge(void) {
    int fds[2];
    char byte;
    pair(fds);
    CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN | EPOLLONESHOT, 1) == 0);
    CHECK(write(fds[1], "x", 1) == 1);
    CHECK(next(1000, NULL) == 1);
    CHECK(next(0, NULL) == -1);
    CHECK(control(EPOLL_CTL_MOD, fds[0], EPOLLIN | EPOLLONESHOT, 2) == 0);
    CHECK(next(1000, NULL) == 2);
    CHECK(control(EPOLL_CTL_DEL, fds[0], 0, 0) == 0);
    if (edges) {
        CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN | EPOLLET, 3) == 0);
        CHECK(next(1000, NULL) == 3);
        CHECK(next(0, NULL) == -1);
        CHECK(read(fds[0], &byte, 1) == 1);
        CHECK(write(fds[1], "y", 1) == 1);
        CHECK(next(1000, NULL) == 3);
    } else {
        CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN | EPOLLET, 3) == -1 && errno == EINVAL);
    }
    close(fds[0]);
    close(fds[1]);
}

/* A number that is closed in any way, and used again. */
static void reuse(void) {
    for (int way = 0; way < 4; way++) {
        int fds[2], again[2];
        pair(fds);
        CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN, way) == 0);
        CHECK(write(fds[1], "x", 1) == 1);
        CHECK(next(1000, NULL) == way);
        pair(again);
        if (way == 0) close(fds[0]);
        if (way == 1) fclose(fdopen(fds[0], "r"));
        if (way == 2) close_range(fds[0], fds[0], 0);
        if (way < 3) CHECK(fcntl(again[0], F_DUPFD, fds[0]) == fds[0]);
        if (way == 3) CHECK(dup2(again[0], fds[0]) == fds[0]);
        CHECK(next(0, NULL) == -1);
        CHECK(write(again[1], "x", 1) == 1);
        CHECK(next(0, NULL) == -1);
        CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN, 10 + way) == 0);
        CHECK(next(1000, NULL) == 10 + way);
        close(fds[0]);
        close(fds[1]);
        close(again[0]);
        close(again[1]);
        CHECK(next(0, NULL) == -1);
    }
}

static void duplicates(void) {
    int fds[2], copy = dup(epfd), before = epfd;
    pair(fds);
    CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN, 4) == 0);
    CHECK(write(fds[1], "x", 1) == 1);
    epfd = copy;
    CHECK(next(1000, NULL) == 4);
    close(copy);
    epfd = before;
    CHECK(next(1000, NULL) == 4);
    close(fds[0]);
    close(fds[1]);
}

/* An instance in another one, and in poll. */
static void nested(void) {
    int fds[2], inner = epfd;
    char byte;
    struct pollfd entry = {inner, POLLIN, 0};
    pair(fds);
    CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN, 5) == 0);
    epfd = epoll_create1(EPOLL_CLOEXEC);
    CHECK(control(EPOLL_CTL_ADD, inner, EPOLLIN, 6) == 0);
    CHECK(next(0, NULL) == -1 && poll(&entry, 1, 0) == 0);
    CHECK(write(fds[1], "x", 1) == 1);
    CHECK(next(1000, NULL) == 6 && poll(&entry, 1, 1000) == 1 && entry.revents == POLLIN);
    CHECK(read(fds[0], &byte, 1) == 1);
    CHECK(next(0, NULL) == -1);
    close(epfd);
    epfd = inner;
    CHECK(control(EPOLL_CTL_DEL, fds[0], 0, 0) == 0);
    close(fds[0]);
    close(fds[1]);
}

static void *write_later(void *fd) {
    usleep(20000);
    CHECK(write(*(int *)fd, "x", 1) == 1);
    return NULL;
}

static void *add_later(void *fd) {
    usleep(20000);
    CHECK(control(EPOLL_CTL_ADD, *(int *)fd, EPOLLIN, 11) == 0);
    return NULL;
}

static void threads(void) {
    int fds[2];
    char byte;
    pthread_t thread;
    pair(fds);
    CHECK(pthread_create(&thread, NULL, add_later, &fds[0]) == 0);
    CHECK(write(fds[1], "x", 1) == 1);
    CHECK(next(-1, NULL) == 11);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(read(fds[0], &byte, 1) == 1);
    CHECK(pthread_create(&thread, NULL, write_later, &fds[1]) == 0);
    CHECK(next(-1, NULL) == 11);
    CHECK(pthread_join(thread, NULL) == 0);
    close(fds[0]);
    close(fds[1]);
}

static void lists(void) {
    int fds[2], other[2], status;
    char byte;
    pthread_t thread;
    fd_set readable;
    struct timeval second = {1, 0};
    struct pollfd list[3];
    pair(fds);
    pair(other);
    list[0] = (struct pollfd){fds[0], POLLIN, 0};
    list[1] = (struct pollfd){-1, POLLIN, 7};
    list[2] = (struct pollfd){other[0], POLLIN, 0};
    CHECK(check_list(list, 1) == 0 && list[1].revents == 0);
    for (int round = 0; round < 2; round++) {
        CHECK(pthread_create(&thread, NULL, write_later, &other[1]) == 0);
        CHECK(check_list(list, -1) == 1 && list[2].revents == POLLIN && list[0].revents == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(read(other[0], &byte, 1) == 1);
    }
    FD_ZERO(&readable);
    FD_SET(fds[0], &readable);
    FD_SET(other[0], &readable);
    CHECK(pthread_create(&thread, NULL, write_later, &fds[1]) == 0);
    CHECK(select(fds[0] + other[0] + 1, &readable, NULL, NULL, &second) == 1);
    CHECK(FD_ISSET(fds[0], &readable) && !FD_ISSET(other[0], &readable));
    CHECK(second.tv_sec == 0 && second.tv_usec > 0);
    CHECK(pthread_join(thread, NULL) == 0);
    /* A closed number, also if another file has it now. */
    close(other[0]);
    list[0].fd = -1;
    CHECK(check_list(list, 1000) == 1 && list[2].revents == POLLNVAL);
    CHECK(dup2(fds[0], other[0]) == other[0]);
    CHECK(check_list(list, 1000) == 1 && list[2].revents == POLLIN);
    CHECK(read(fds[0], &byte, 1) == 1);
    CHECK(pthread_create(&thread, NULL, write_later, &fds[1]) == 0);
    CHECK(check_list(list, -1) == 1 && list[2].revents == POLLIN);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(read(fds[0], &byte, 1) == 1);
    /* A child has a set of its own. */
    CHECK(check_list(list, 1) == 0);
    if (fork() == 0) {
        CHECK(write(fds[1], "x", 1) == 1);
        CHECK(check_list(list, -1) == 1);
        _exit(0);
    }
    CHECK(wait(&status) > 0 && status == 0);
    CHECK(check_list(list, -1) == 1);
    close(fds[0]);
    close(fds[1]);
    close(other[0]);
    close(other[1]);
}

static void forks(void) {
    int fds[2], status;
    char byte;
    pair(fds);
    CHECK(control(EPOLL_CTL_ADD, fds[0], EPOLLIN, 12) == 0);
    CHECK(next(0, NULL) == -1);
    if (fork() == 0) {
        CHECK(write(fds[1], "x", 1) == 1);
        CHECK(next(-1, NULL) == 12);
        CHECK(read(fds[0], &byte, 1) == 1);
        _exit(0);
    }
    CHECK(wait(&status) > 0 && status == 0);
    CHECK(write(fds[1], "x", 1) == 1);
    CHECK(next(-1, NULL) == 12);
    /* A child of vfork shares this memory. */
    if (vfork() == 0) {
        close(fds[0]);
        close(epfd);
        _exit(0);
    }
    CHECK(wait(&status) > 0 && status == 0);
    CHECK(next(1000, NULL) == 12);
    close(fds[0]);
    close(fds[1]);
}

/* A process without free descriptors: poll(2) needs none. */
static void exhausted(void) {
    int fds[2], status;
    struct pollfd list[3];
    struct rlimit none = {3, 3};
    pair(fds);
    if (fork() == 0) {
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        CHECK(epoll_create1(EPOLL_CLOEXEC) == -1 && errno == EMFILE);
        list[0].fd = fds[0];
        list[0].events = POLLIN;
        list[1].fd = list[2].fd = -1;
        CHECK(poll(list, 1, -1) == 1 && list[0].revents == POLLIN);
        _exit(0);
    }
    CHECK(write(fds[1], "x", 1) == 1);
    CHECK(wait(&status) > 0 && status == 0);
    close(fds[0]);
    close(fds[1]);
}

static void handle(int number) {
    (void)number;
}

static void signals(void) {
    struct epoll_event event;
    struct sigaction action;
    sigset_t blocked, mask;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0);
    sigdelset(&mask, SIGUSR1);
    CHECK(raise(SIGUSR1) == 0);
    CHECK(epoll_pwait(epfd, &event, 1, 10000, &mask) == -1 && errno == EINTR);
}

static void refusals(void) {
    int fds[2], file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    char buffer[CMSG_SPACE(sizeof(int))];
    struct iovec byte = {(char *)"x", 1};
    struct msghdr message;
    struct cmsghdr *header;
    memset(&message, 0, sizeof message);
    message.msg_iov = &byte;
    message.msg_iovlen = 1;
    message.msg_control = buffer;
    message.msg_controllen = sizeof buffer;
    header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &epfd, sizeof epfd);
    pair(fds);
    CHECK(sendmsg(fds[0], &message, 0) == -1 && errno == EOPNOTSUPP);
    CHECK(control(EPOLL_CTL_ADD, file, EPOLLIN, 1) == -1 && errno == EPERM);
    close(file);
    close(fds[0]);
    close(fds[1]);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    edges = strchr(argv[1], 'e') != NULL;
    nests = strchr(argv[1], 'n') != NULL;
    epfd = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epfd >= 0);
    level();
    one_shot_and_edge();
    reuse();
    duplicates();
    threads();
    if (nests) nested();
    lists();
    forks();
    exhausted();
    signals();
    refusals();
    close(epfd);
    CHECK(control(EPOLL_CTL_ADD, 0, EPOLLIN, 1) == -1 && errno == EBADF);
    return 0;
}
