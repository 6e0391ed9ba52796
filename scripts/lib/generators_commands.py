"""Commands of load generators, and parsers of their output."""

import json
import re

CONNECTIONS = 100  # of the constant-rate commands
# Requests sent before the measured ones.
WARM_UP = {"fortio": CONNECTIONS}


class Failed(Exception):
    """A measurement that failed."""


def httperf(url, *options):
    host, port = url.removeprefix("http://").split(":")
    return ["httperf", "--hog", "--server", host, "--port", port, "--uri", "/1b", *options]


def at_rate(name, hearken, url, rate, seconds):
    """Returns the command for a constant rate."""
    load = [hearken, "load", f"{url}/1b", "--rate", rate, "--duration", f"{seconds}s", "--json", "-"]
    target = f"{url}/1b"
    return {
        "hearken": [*load, "--arrivals", "constant", "-c", CONNECTIONS],
        "hearken, connections": [*load, "--arrivals", "constant", "--per-connection", 1],
        "hearken, poisson": [*load, "--arrivals", "poisson", "-c", CONNECTIONS],
        "httperf": httperf(url, "--rate", rate, "--num-conns", rate * seconds, "--num-calls", 1, "--timeout", 5),
        "httperf, poisson": httperf(url, "--period", f"e{1 / rate}", "--num-conns", rate * seconds, "--num-calls", 1,
                                    "--timeout", 5),
        "h2load": ["h2load", "--h1", "-t1", "-c10", f"-D{seconds}", f"--rps={rate // 10}", target],
        "wrk2": ["wrk2", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", f"-R{rate}", target],
        "fortio": ["fortio", "load", "-quiet", "-qps", rate, "-c", CONNECTIONS, "-t", f"{seconds}s", "-uniform",
                   target],
        "oha": ["oha", "--no-tui", "-q", rate, "-c", CONNECTIONS, "-z", f"{seconds}s", target],
        "vegeta": ["sh", "-c", f"echo GET {target} | vegeta attack -rate={rate}/s -duration={seconds}s |"
                               " vegeta report"],
    }[name]


def closed(name, hearken, url, seconds):
    """Returns the command for a closed loop."""
    target = f"{url}/1b"
    return {
        "hearken": [hearken, "load", target, "--closed", "-c", 64, "--duration", f"{seconds}s", "--json", "-"],
        "wrk": ["wrk", "-t1", "-c64", f"-d{seconds}s", target],
        "wrk2": ["wrk2", "-t1", "-c64", f"-d{seconds}s", "-R1000000", target],
        "h2load": ["h2load", "--h1", "-t1", "-c64", f"-D{seconds}", target],
        "ab": ["ab", "-q", "-k", "-c64", f"-t{seconds}", f"-n{300_000 * seconds}", target],
        "fortio": ["fortio", "load", "-quiet", "-qps", 0, "-c", 64, "-t", f"{seconds}s", target],
        "oha": ["oha", "--no-tui", "-c", 64, "-z", f"{seconds}s", target],
        # httperf has no closed loop, so far more requests are offered than can be answered.
        "httperf": httperf(url, "--rate", 2_000, "--num-conns", 2_000 * seconds, "--num-calls", 100, "--timeout", 5),
    }[name]


# Patterns of the number of replies and the reply rate.
REPLIES = {
    "wrk": (r"(\d+) requests in", r"Requests/sec:\s+([\d.]+)"),
    "wrk2": (r"(\d+) requests in", r"Requests/sec:\s+([\d.]+)"),
    "h2load": (r"(\d+) succeeded", r"finished in [^,]*, ([\d.]+) req/s"),
    "ab": (r"Complete requests:\s+(\d+)", r"Requests per second:\s+([\d.]+)"),
    "httperf": (r"replies (\d+) test-duration", r"Request rate: ([\d.]+) req/s"),
    "fortio": (r"Code 200 : (\d+)", r" avg, ([\d.]+) qps"),
    "oha": (r"\[200\] (\d+) responses", r"Requests/sec:\s+([\d.]+)"),
    "vegeta": (r"200:(\d+)", r"\[total, rate, throughput\]\s+\d+, [\d.]+, ([\d.]+)"),
}


def replies(name, output, errors):
    """Parses the number of replies and the reply rate."""
    if name.startswith("hearken"):
        report = json.loads(output)
        return report["requests"]["replies"], report["reply_rate"]
    output += "\n" + errors
    found = [re.search(pattern, output) for pattern in REPLIES[name.split(",")[0]]]
    if None in found:
        raise Failed(f"{name}: cannot parse its output:\n{output[-600:]}")
    return int(found[0][1]), float(found[1][1])
