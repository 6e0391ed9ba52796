"""Compares event loops by the CPU time that a request costs the server.

    python benchmarks/compare.py [--connections 20] [--requests 20000] [--rounds 5] [--instructions] [LOOP ...]

A LOOP is `asyncio`, `uvloop`, `selector:NAME` or `completions:NAME` with a mechanism of Hearken, or `c`: echo.c, which
makes the same system calls without an event loop. The servers of
all loops run at the same time, and take turns in an order that changes every round. The load is the same for all:
connections with one request of 64 bytes each in progress. The figures are user and system time per request, the
median of all rounds; the ratio to asyncio is the median of the ratios within a round. With --instructions, the figures
are instructions in user mode, which valgrind counts.
"""

import argparse
import platform
import random
import re
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOOPS = ["asyncio", "uvloop", "c", "selector:epoll-level", "selector:epoll-edge", "selector:poll",
         "completions:epoll-edge", "completions:epoll-level", "completions:uring", "completions:uring:sends=ring"]
DIRECTORY = tempfile.TemporaryDirectory()
KINDS = ["echo", "streams", "http"]
REQUESTS = {
    "echo": bytes(64),
    "streams": bytes(64),
    "http": b"GET /path HTTP/1.1\r\nHost: localhost\r\nUser-Agent: compare\r\n\r\n",
}


def command(loop, kind):
    """Returns the command of a server."""
    if loop != "c":
        return [sys.executable, str(Path(__file__).with_name("server.py")), loop, kind]
    program = str(Path(DIRECTORY.name) / "echo")
    source = str(Path(__file__).with_name("echo.c"))
    subprocess.run(["cc", "-O2", "-pthread", source, "-o", program], check=True)
    return [program, kind]


class Server:
    def __init__(self, loop, kind, prefix=(), stderr=None):
        self.process = subprocess.Popen([*prefix, *command(loop, kind)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=stderr, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the server over {loop} did not start")
        self.address = ("127.0.0.1", int(line))

    def cpu_time(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [float(value) for value in self.process.stdout.readline().split()]

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def run_load(address, request, connections, requests):
    """Sends requests, one at a time on each connection. Returns the requests per second."""
    poller = select.epoll()
    sockets = {}
    for _ in range(connections):
        client = socket.create_connection(address)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[client.fileno()] = client
        poller.register(client, select.EPOLLIN)
    start = time.perf_counter()
    for client in sockets.values():
        client.send(request)
    answered, sent = 0, connections
    while answered < requests:
        for fd, _ in poller.poll(10):
            client = sockets[fd]
            client.recv(65536)
            answered += 1
            if sent < requests:
                client.send(request)
                sent += 1
    rate = requests / (time.perf_counter() - start)
    for client in sockets.values():
        client.close()
    poller.close()
    return rate


def measure(kind, loops, arguments):
    servers = {loop: Server(loop, kind) for loop in loops}
    results = {loop: [] for loop in loops}
    try:
        for number in range(arguments.rounds + 1):
            order = random.sample(loops, len(loops))
            for loop in order:
                server = servers[loop]
                before = server.cpu_time()
                rate = run_load(server.address, REQUESTS[kind], arguments.connections, arguments.requests)
                after = server.cpu_time()
                user, system = (1e6 * (b - a) / arguments.requests for a, b in zip(before, after))
                # The first round warms up.
                if number > 0:
                    results[loop].append((user, system, rate))
    finally:
        for server in servers.values():
            server.stop()
    return results


def count_instructions(loop, kind, arguments):
    """Returns the instructions of a request in user mode: the difference between two runs."""
    totals = []
    for requests in (arguments.requests, 3 * arguments.requests):
        valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        server = Server(loop, kind, valgrind, subprocess.PIPE)
        run_load(server.address, REQUESTS[kind], arguments.connections, requests)
        server.process.stdin.close()
        totals.append(int(re.search(r"Collected : (\d+)", server.process.stderr.read()).group(1)))
        server.process.wait()
    return (totals[1] - totals[0]) / (2 * arguments.requests)


def ratio(results, loop, base):
    """Returns the median of the ratios of CPU time within a round, and their range."""
    ratios = sorted((a[0] + a[1]) / (b[0] + b[1]) for a, b in zip(results[loop], results[base]))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--requests", type=int, default=20_000, help="requests in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of CPU time")
    parser.add_argument("loops", nargs="*")
    arguments = parser.parse_args()
    loops = arguments.loops or LOOPS
    print(f"{platform.python_implementation()} {platform.python_version()}, Linux {platform.release()}, "
          f"{arguments.connections} connections, {arguments.rounds} rounds of {arguments.requests} requests")
    for kind in arguments.kind or KINDS:
        if arguments.instructions:
            print(f"\n{kind:<29}{'instructions':>12}   / asyncio")
            counts = {loop: count_instructions(loop, kind, arguments) for loop in loops}
            for loop, count in counts.items():
                print(f"{loop:<29}{count:>12.0f}   {count / counts[loops[0]]:.2f}", flush=True)
            continue
        results = measure(kind, loops, arguments)
        print(f"\n{kind:<29}{'user us':>9}{'system us':>11}{'requests/s':>12}   CPU time / asyncio   / uvloop")
        for loop in loops:
            user, system, rate = (statistics.median(values) for values in zip(*results[loop]))
            compared = [ratio(results, loop, base) if base in results else "" for base in ("asyncio", "uvloop")]
            print(f"{loop:<29}{user:>9.2f}{system:>11.2f}{rate:>12.0f}   {compared[0]:<20} {compared[1]}")


if __name__ == "__main__":
    main()
