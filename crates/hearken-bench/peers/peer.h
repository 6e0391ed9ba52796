/* Common code of the peers in C: descriptors, schedule, passes and output. It does what src/pairs.rs and
 * src/measure.rs do, in the same order. A peer includes this file, implements `open_peer` and `dispatch`,
 * and is compiled on its own: cc -O2 PEER.c -lLIBRARY.
 *
 * Arguments: VARIANT DESCRIPTORS ACTIVE sockets|pipes PASSES PASS_NS SEGMENTS (comma-separated)
 * Output: one line of JSON (struct Measurement in src/measure.rs). */
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
static int base; /* position in `order` of the next round */

/* Implemented by the peer: returns its name and version. Exits with status 3 if the library does not
 * support the variant. */
static const char *open_peer(void);
/* Implemented by the peer: receives events until `events` bytes were read with `read_byte`. */
static void dispatch(int events);

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static inline void unsupported(const char *reason) {
    fprintf(stderr, "%s\n", reason);
    exit(3);
}

/* Reads one byte from the descriptor at `index`. Returns 0 if there was none. The buffer is larger than
 * the data, so that edge-triggered peers learn from the short read that the descriptor is drained. */
static inline int read_byte(int index) {
    char buffer[16];
    ssize_t count = read(readers[index], buffer, sizeof buffer);
    if (count == 1) return 1;
    if (count < 0 && errno == EAGAIN) return 0;
    die("read");
    return 0;
}

/* Returns the next number of splitmix64, as in src/pairs.rs, so that both use the same order. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void create_pairs(const char *type) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    readers = malloc(sizeof(int) * descriptors);
    writers = malloc(sizeof(int) * descriptors);
    order = malloc(sizeof(int) * (descriptors + active));
    for (int i = 0; i < descriptors; i++) {
        int pair[2];
        int failed = strcmp(type, "pipes") ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair)
                                         : pipe2(pair, O_NONBLOCK);
        if (failed) die("socketpair or pipe");
        readers[i] = pair[0], writers[i] = pair[1], order[i] = i;
    }
    uint64_t state = 1;
    for (int i = descriptors - 1; i > 0; i--) {
        int j = next_random(&state) % (i + 1), other = order[i];
        order[i] = order[j], order[j] = other;
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

static long long read_counter(int fd) {
    long long value;
    return fd >= 0 && read(fd, &value, sizeof value) == sizeof value ? value : -1;
}

/* Returns the number of rounds that take `ns`. Running them also warms up caches. */
static long calibrate(long ns) {
    rounds(4); /* Some libraries register the descriptors in their first wait. */
    for (long n = 2;; n *= 2) {
        long before = cpu_ns();
        rounds(n);
        long elapsed = cpu_ns() - before;
        if (elapsed >= ns / 2 || n >= 1L << 30) {
            double fit = (double)n * ns / (elapsed > 0 ? elapsed : 1);
            return fit < 2 ? 2 : (long)fit;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "this program is started by `dispatch`\n");
        return 2;
    }
    variant = argv[1], descriptors = atoi(argv[2]), active = atoi(argv[3]);
    if (active < 1 || active > descriptors) return 2;
    create_pairs(argv[4]);
    const char *version = open_peer();
    int passes = atoi(argv[5]);
    long n = calibrate(atol(argv[6]));
    int user = counter(0), kernel = counter(1);
    printf("{\"version\":\"%s\",\"passes\":[", version);
    for (int i = 0; i < passes; i++) {
        long long u = read_counter(user), k = read_counter(kernel);
        long before = cpu_ns();
        rounds(n);
        long elapsed = cpu_ns() - before;
        printf("%s{\"events\":%ld,\"cpu_ns\":%ld", i ? "," : "", n * active, elapsed);
        if (u >= 0) printf(",\"user\":%lld", read_counter(user) - u);
        if (k >= 0) printf(",\"kernel\":%lld", read_counter(kernel) - k);
        printf("}");
    }
    printf("]}\n");
    fflush(stdout);
    close(user), close(kernel);
    if (*argv[7] == 0) return 0;
    /* The driver traces each segment between two stops. */
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) die("ptrace(PTRACE_TRACEME)");
    for (char *word = strtok(argv[7], ","); word; word = strtok(NULL, ",")) {
        long many = atol(word);
        kill(getpid(), SIGSTOP);
        rounds(many);
    }
    kill(getpid(), SIGSTOP);
    return 0;
}
