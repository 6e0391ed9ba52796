/* The parts of a server that the figures of the papers leave out: it echoes one line at a time. */
#ifndef SERVER_H
#define SERVER_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void stop(int number) {
    (void)number;
    _exit(0);
}

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

static inline void SetNonblocking(int fd) {
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0) fail("fcntl");
}

/* Listens on a free port of the loopback address, prints the port, and ends with SIGTERM. */
static inline int StartListening(void) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, 16) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        fail("listen");
    SetNonblocking(fd);
    signal(SIGTERM, stop);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

/* Echoes what has arrived. Returns 0 after the end of the stream, when the caller closes FD. */
static inline int Echo(int fd) {
    char bytes[512];
    ssize_t count;
    while ((count = read(fd, bytes, sizeof bytes)) > 0)
        if (write(fd, bytes, (size_t)count) != count) fail("write");
    return count < 0 && errno == EAGAIN;
}

#endif
