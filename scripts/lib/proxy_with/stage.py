"""The processes of a part, which are stopped at its end."""

import os
import shutil
import signal
import socket
import subprocess
import time

# Time limits, in seconds, for a server to listen and for a client to finish on a busy machine.
START = 20
PATIENCE = 120


class Skipped(Exception):
    """A part that cannot run in this environment."""


def need(program, package):
    """Returns the path of a program, also from directories for root. Skips the part if it is missing."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    found = shutil.which(program, path=path)
    if not found:
        raise Skipped(f"{program} is not installed (apt-get install --no-install-recommends {package})")
    return found


def same(what, got, expected):
    """Checks that two values are equal. Long values are shortened in the message."""
    if got != expected:
        raise AssertionError(f"{what}: {shown(got)} instead of {shown(expected)}")


def shown(value):
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:120]}... ({len(value)} long)"


def brief(error):
    text = " ".join(str(error).split())[:600]
    return text if isinstance(error, AssertionError) and text else f"{type(error).__name__}: {text}"


class Stage:
    """A directory, the proxy under test, and running processes."""

    def __init__(self, directory, proxy):
        self.dir = directory
        self.proxy = proxy
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, log in reversed(self.running):
            stop(process)
            log.close()

    def port(self):
        """Returns a free port. If another process takes it in the meantime, the part fails."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def start(self, name, words, port):
        """Starts a server and waits until it listens."""
        log = open(self.dir / f"{name}.log", "wb")
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   cwd=self.dir, start_new_session=True)
        self.running.append((process, log))
        deadline = time.monotonic() + START
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=START).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"{name} does not listen: {self.log(name)}") from None
                time.sleep(0.02)
        if process.poll() is not None:
            raise AssertionError(f"{name} exited immediately: {self.log(name)}")
        return process

    def log(self, name):
        return (self.dir / f"{name}.log").read_bytes()[-1000:].decode(errors="replace")

    def end(self, process):
        """Stops a server before the end of the part."""
        for pair in [pair for pair in self.running if pair[0] is process]:
            stop(process)
            pair[1].close()
            self.running.remove(pair)

    def reverse(self, origin):
        """Starts a proxy for an origin ADDR:PORT. Returns its own ADDR:PORT."""
        return self.proxy.reverse(self, origin)

    def forward(self, ports):
        """Starts a forward proxy that allows tunnels to these ports. Returns its ADDR:PORT."""
        return self.proxy.forward(self, ports)

    def run(self, words, expected=0, **more):
        """Runs a client and returns its standard output."""
        done = subprocess.run(words, capture_output=True, timeout=PATIENCE, cwd=self.dir, check=False, **more)
        if expected is not None and done.returncode != expected:
            errors = done.stderr.decode(errors="replace")[-400:]
            command = " ".join(str(word) for word in words)[-300:]
            raise AssertionError(f"`{command}` exited with {done.returncode}: {errors}")
        return done.stdout


def stop(process):
    """Stops a process and its descendants."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        try:
            os.killpg(process.pid, sign)
            process.wait(timeout=3)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
    try:
        # Descendants may outlive the process.
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
