"""Processes that a part starts, and what it looks at; all of them end with the part."""

import os
import shutil
import signal
import socket
import subprocess
import time

# For a process to listen, and for a client to have its answer, however busy the machine is.
START = 20
PATIENCE = 120


class Skipped(Exception):
    """A part that cannot be done here."""


def need(program, package):
    """The path of a program, which servers often have where only root looks; or the part is skipped."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    found = shutil.which(program, path=path)
    if not found:
        raise Skipped(f"{program} is not installed (apt-get install --no-install-recommends {package})")
    return found


def same(what, got, expected):
    """Two things that must be equal; long ones are not shown."""
    if got != expected:
        raise AssertionError(f"{what}: {shown(got)} instead of {shown(expected)}")


def shown(value):
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:120]}... ({len(value)} long)"


def brief(error):
    text = " ".join(str(error).split())[:600]
    return text if isinstance(error, AssertionError) and text else f"{type(error).__name__}: {text}"


class Stage:
    """A directory, the proxy that was chosen, and what runs."""

    def __init__(self, directory, proxy):
        self.dir = directory
        self.chosen = proxy
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, log in reversed(self.running):
            stop(process)
            log.close()

    def port(self):
        """One that is free; another process may take it meanwhile, which is then told."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def start(self, name, words, port):
        """Starts a server, and returns when it listens."""
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
                    raise AssertionError(f"{name} does not listen: {self.said(name)}") from None
                time.sleep(0.02)
        if process.poll() is not None:
            raise AssertionError(f"{name} ended at once: {self.said(name)}")
        return process

    def said(self, name):
        return (self.dir / f"{name}.log").read_bytes()[-1000:].decode(errors="replace")

    def end(self, process):
        """Ends one before the part does."""
        for pair in [pair for pair in self.running if pair[0] is process]:
            stop(process)
            pair[1].close()
            self.running.remove(pair)

    def reverse(self, origin):
        """A proxy before an origin, ADDR:PORT; its own ADDR:PORT."""
        return self.chosen.reverse(self, origin)

    def forward(self, ports):
        """A proxy to anywhere, whose tunnels may go to these ports; its ADDR:PORT."""
        return self.chosen.forward(self, ports)

    def run(self, words, expected=0, **more):
        """Runs a client to its end, and returns what it wrote to standard output."""
        done = subprocess.run(words, capture_output=True, timeout=PATIENCE, cwd=self.dir, check=False, **more)
        if expected is not None and done.returncode != expected:
            said = done.stderr.decode(errors="replace")[-400:]
            command = " ".join(str(word) for word in words)[-300:]
            raise AssertionError(f"`{command}` ended with {done.returncode}: {said}")
        return done.stdout


def stop(process):
    """Ends a process and what it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        try:
            os.killpg(process.pid, sign)
            process.wait(timeout=3)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
    try:
        # It may have ended before its children.
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
