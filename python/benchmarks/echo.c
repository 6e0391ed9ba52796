/* A reference for `compare.py`: echo.c KIND, without an event loop around its three system calls per request.
 * Prints its port, then its CPU time for each line it reads. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static const char response[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, world!";

static void *report(void *unused) {
    char line[16];
    struct rusage usage;
    (void)unused;
    while (fgets(line, sizeof line, stdin)) {
        getrusage(RUSAGE_SELF, &usage);
        printf("%ld.%06ld %ld.%06ld\n", usage.ru_utime.tv_sec, usage.ru_utime.tv_usec, usage.ru_stime.tv_sec,
               usage.ru_stime.tv_usec);
        fflush(stdout);
    }
    exit(0);
}

static void watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) exit(1);
}

int main(int argc, char **argv) {
    int http = argc == 2 && strcmp(argv[1], "http") == 0;
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    struct epoll_event events[256];
    static char buffer[65536];
    pthread_t thread;
    if (bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 100) < 0) return 1;
    if (getsockname(listener, (struct sockaddr *)&address, &length) < 0) return 1;
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    if (pthread_create(&thread, NULL, report, NULL) != 0) return 1;
    watch(epoll, listener);
    for (;;) {
        int count = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            ssize_t received;
            if (fd == listener) {
                watch(epoll, accept4(listener, NULL, NULL, SOCK_NONBLOCK));
            } else if ((received = recv(fd, buffer, sizeof buffer, 0)) <= 0) {
                close(fd);
            } else if (send(fd, http ? response : buffer, http ? sizeof response - 1 : (size_t)received, 0) < 0) {
                return 1;
            }
        }
    }
}
