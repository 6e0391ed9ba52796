/* A lower bound for servers with a thread per connection: a blocking loop that receives, finds the end of the
   head, checks the file of the request with statx(2), and sends a fixed reply. `floor-threads PORT ROOT` waits
   in recv(2), limited by SO_RCVTIMEO. `floor-threads PORT ROOT poll` waits in poll(2) before each recv(2), as
   a server does whose timeouts differ. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { REQUEST = 16384, PATH_LENGTH = 4096, STACK = 128 * 1024, TIMEOUT_S = 3600 };

/* The same length and fields as the response of hearken serve for a file of one byte. */
static const char REPLY[] =
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Type: application/octet-stream\r\n"
    "X-Content-Type-Options: nosniff\r\nAccept-Ranges: bytes\r\nETag: \"0123456789abcdef\"\r\n"
    "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\nx";

static const char *root;
static size_t root_length;
static int polls;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Writes the path of the file that the request names. Returns false if it is none. */
static int path_of(const char *head, char *path) {
    const char *from = memchr(head, ' ', 16);
    const char *to = from ? strchr(from + 1, ' ') : NULL;
    if (!to || from[1] != '/' || root_length + (size_t)(to - from) > PATH_LENGTH)
        return 0;
    memcpy(path, root, root_length);
    memcpy(path + root_length, from + 1, to - from - 1);
    path[root_length + (to - from - 1)] = 0;
    return 1;
}

static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument;
    char request[REQUEST + 1], path[PATH_LENGTH];
    size_t length = 0;
    for (;;) {
        struct pollfd readable = { .fd = fd, .events = POLLIN };
        if (polls && poll(&readable, 1, TIMEOUT_S * 1000) <= 0)
            break;
        ssize_t count = recv(fd, request + length, REQUEST - length, 0);
        if (count <= 0)
            break;
        length += count;
        request[length] = 0;
        if (!strstr(request, "\r\n\r\n")) {
            if (length == REQUEST)
                break;
            continue;
        }
        struct statx file;
        if (!path_of(request, path)
            || statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &file)
            || send(fd, REPLY, sizeof REPLY - 1, MSG_NOSIGNAL) != (ssize_t)sizeof REPLY - 1)
            break;
        length = 0; /* The generator sends one request at a time. */
    }
    close(fd);
    return NULL;
}

int main(int argc, char **argv) {
    int one = 1, fd;
    if (argc < 3)
        return fputs("usage: floor-threads PORT ROOT [poll]\n", stderr), 2;
    root = argv[2];
    root_length = strlen(root);
    polls = argc > 3;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval timeout = { .tv_sec = TIMEOUT_S };
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4096))
        fail("listen");
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        if (!polls && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout))
            fail("SO_RCVTIMEO");
        if (pthread_create(&thread, &attributes, serve, (void *)(intptr_t)fd))
            close(fd);
    }
    fail("accept");
}
