/* What every peer in C shares: the descriptors, the schedule, the passes and what is said of them.
 * It does what src/pairs.rs and src/measure.rs do, in the same order. A peer includes this file,
 * fills in `open_peer` and `dispatch`, and is compiled alone: cc -O2 PEER.c -lLIBRARY.
 *
 * Arguments: VARIANT DESCRIPTORS ACTIVE sockets|pipes PASSES PASS_NS SEGMENTS (comma-separated)
 * Answer: one line of JSON (struct Raw in src/measure.rs). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *variant;
static int descriptors, active;
static int *readers, *writers, *order;
static int base; /* where in `order` the next round begins */

/* To be filled in by the peer: returns what it is, with its version; exits with 3 where the library
 * was built without the variant. */
static const char *open_peer(void);
/* Takes events until `events` bytes were read with `take`. */
static void dispatch(int events);

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static inline void refuse(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(3);
}

/* Reads one byte from the descriptor at `index`; 0 if there was none. The room is larger than what
 * comes, so that a short read tells edge-triggered peers that nothing is left. */
static inline int take(int index) {
    char room[16];
    ssize_t got = read(readers[index], room, sizeof room);
    if (got == 1) return 1;
    if (got < 0 && errno == EAGAIN) return 0;
    die("read");
    return 0;
}

/* splitmix64, as in src/pairs.rs: both visit the descriptors in the same order. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void make_pairs(const char *over) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    readers = malloc(sizeof(int) * descriptors);
    writers = malloc(sizeof(int) * descriptors);
    order = malloc(sizeof(int) * (descriptors + active));
    for (int i = 0; i < descriptors; i++) {
        int pair[2];
        int made = strcmp(over, "pipes") ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair)
                                         : pipe2(pair, O_NONBLOCK);
        if (made) die("socketpair or pipe");
        readers[i] = pair[0], writers[i] = pair[1], order[i] = i;
    }
    uint64_t state = 1;
    for (int i = descriptors - 1; i > 0; i--) {
        int j = next_random(&state) % (i + 1), kept = order[i];
        order[i] = order[j], order[j] = kept;
    }
    for (int i = 0; i < active; i++) order[descriptors + i] = order[i];
}

static void rounds(long n) {
    for (; n > 0; n--) {
        int *now = order + base;
        for (int i = 0; i < active; i++)
            if (write(writers[now[i]], "x", 1) != 1) die("write");
        dispatch(active);
        base += active;
        if (base >= descriptors) base -= descriptors;
    }
}

static long cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int counter(int kernel) {
    struct perf_event_attr a = {.type = PERF_TYPE_HARDWARE, .size = sizeof a};
    a.config = PERF_COUNT_HW_INSTRUCTIONS, a.exclude_hv = 1;
    a.exclude_user = kernel, a.exclude_kernel = !kernel;
    return syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static long long counted(int fd) {
    long long value;
    return fd >= 0 && read(fd, &value, sizeof value) == sizeof value ? value : -1;
}

/* The number of rounds that takes `ns`, found by running them, so that it also warms up. */
static long calibrate(long ns) {
    rounds(4); /* Some tell the kernel of all the descriptors in their first wait. */
    for (long n = 2;; n *= 2) {
        long before = cpu_ns();
        rounds(n);
        long took = cpu_ns() - before;
        if (took >= ns / 2 || n >= 1L << 30) {
            double fit = (double)n * ns / (took > 0 ? took : 1);
            return fit < 2 ? 2 : (long)fit;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "started by `dispatch`, which see\n");
        return 2;
    }
    variant = argv[1], descriptors = atoi(argv[2]), active = atoi(argv[3]);
    if (active < 1 || active > descriptors) return 2;
    make_pairs(argv[4]);
    const char *version = open_peer();
    int passes = atoi(argv[5]);
    long n = calibrate(atol(argv[6]));
    int user = counter(0), kernel = counter(1);
    printf("{\"version\":\"%s\",\"passes\":[", version);
    for (int i = 0; i < passes; i++) {
        long long u = counted(user), k = counted(kernel);
        long before = cpu_ns();
        rounds(n);
        long took = cpu_ns() - before;
        printf("%s{\"events\":%ld,\"cpu_ns\":%ld", i ? "," : "", n * active, took);
        if (u >= 0) printf(",\"user\":%lld", counted(user) - u);
        if (k >= 0) printf(",\"kernel\":%lld", counted(kernel) - k);
        printf("}");
    }
    printf("]}\n");
    fflush(stdout);
    close(user), close(kernel);
    if (*argv[7] == 0) return 0;
    /* Each segment between two stops is traced by the driver. */
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) die("ptrace(PTRACE_TRACEME)");
    for (char *word = strtok(argv[7], ","); word; word = strtok(NULL, ",")) {
        long many = atol(word);
        kill(getpid(), SIGSTOP);
        rounds(many);
    }
    kill(getpid(), SIGSTOP);
    return 0;
}
