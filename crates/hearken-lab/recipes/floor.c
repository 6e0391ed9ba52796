/* A lower bound for servers that use epoll: a bare edge-triggered loop that reads, ignores the request, and
   writes a fixed reply. `floor PORT` keeps connections open. `floor PORT close` serves one request per
   connection: it defers accept until the request has arrived, reads immediately after accept without
   epoll, and sends reply and FIN in one packet. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 512, REQUEST = 4096 };

/* The same length and fields as the response of hearken serve for a file of one byte. */
static const char KEPT[] =
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Type: application/octet-stream\r\n"
    "X-Content-Type-Options: nosniff\r\nAccept-Ranges: bytes\r\nETag: \"0123456789abcdef\"\r\n"
    "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\nx";
static const char CLOSED[] =
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Type: application/octet-stream\r\n"
    "X-Content-Type-Options: nosniff\r\nAccept-Ranges: bytes\r\nETag: \"0123456789abcdef\"\r\n"
    "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
    "Connection: close\r\n\r\nx";

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static char request[REQUEST];

/* Reads and replies. Returns true if the peer has closed the connection. */
static int serve(int fd, const char *reply, size_t length, int flags) {
    ssize_t count = read(fd, request, sizeof request);
    if (count > 0)
        return send(fd, reply, length, flags) != (ssize_t)length;
    return count == 0 || errno != EAGAIN;
}

int main(int argc, char **argv) {
    int one = 1, closes = argc > 2;
    if (argc < 2)
        return fputs("usage: floor PORT [close]\n", stderr), 2;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (closes && setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &one, sizeof one))
        fail("TCP_DEFER_ACCEPT");
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4096))
        fail("listen");
    int epoll = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN, .data.fd = listener }, events[EVENTS];
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event))
        fail("epoll");
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd != listener) {
                if (serve(fd, KEPT, sizeof KEPT - 1, 0))
                    close(fd);
                continue;
            }
            while ((fd = accept4(listener, 0, 0, SOCK_NONBLOCK)) >= 0) {
                if (closes) {
                    /* Keeps the reply until the FIN, which leaves in the same packet. */
                    serve(fd, CLOSED, sizeof CLOSED - 1, MSG_MORE);
                    close(fd);
                    continue;
                }
                event = (struct epoll_event){ .events = EPOLLIN | EPOLLET, .data.fd = fd };
                if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
                    fail("epoll_ctl");
            }
        }
    }
}
