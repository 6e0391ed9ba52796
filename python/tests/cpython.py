"""Runs CPython's own tests over the mechanisms, and compares the results with those of CPython's selectors.

    python tests/cpython.py [--suite selectors|epoll|devpoll|asyncio] [NAME ...]

A NAME is a mechanism, or `io:` and a mechanism or `uring`: the event loop based on completions. The default is
all that this kernel offers. DEVPOLL names a directory with a module `select` that has `devpoll`, which CPython builds
only where `sys/devpoll.h` exists, and PRELOAD the library that provides `/dev/poll`. Without them, the suite devpoll is
skipped. A failure counts if the same test passes with CPython's own selectors, and is not
on the list of exceptions below. Needs the module `test` of the standard library (Debian:
libpython3-testsuite).
"""

import argparse
import asyncio
import fnmatch
import importlib
import json
import os
import pkgutil
import select
import selectors
import subprocess
import sys
import unittest

import hearken
from hearken import selectors as hearken_selectors

STANDARD = "standard"

# Tests that cannot pass, by pattern of the mechanism, pattern of the test, and reason.
EXCEPTIONS = [
    ("uring-poll", "*.test_above_fd_setsize",
     "io_uring completes thousands of poll requests in several waits"),
    *[(name, "test_epoll.*.test_control_and_wait", "level-triggered mechanisms refuse EPOLLET")
      for name in ("select", "poll", "dev-poll", "locality", "epoll-level", "epoll-once")],
    *[(name, "test_epoll.*.test_control_and_wait",
       "the test expects EPOLLOUT in the event of an arrival; an edge reports what arrived")
      for name in ("rt-signal", "signal-per-fd", "uring-poll")],
    *[(name, f"test_epoll.*.{test}", "the mechanism has no descriptor, so that fileno() fails")
      for name in ("select", "poll", "locality", "rt-signal", "signal-per-fd", "epoll-batched", "uring-poll")
      for test in ("test_close", "test_context_manager", "test_create", "test_fd_non_inheritable", "test_fromfd")],
]


def names():
    """Returns the names of all mechanisms and event loops of this kernel."""
    available = [name for name, refused in hearken.mechanisms().items() if refused is None]
    with_completions = [name for name in available if name not in ("rt-signal", "signal-per-fd")]
    return available + [f"io:{name}" for name in with_completions + ["uring"]]


def is_exception(name, test):
    return any(fnmatch.fnmatch(name, pattern) and fnmatch.fnmatch(test, tests)
               for pattern, tests, _ in EXCEPTIONS)


def selectors_suite(name):
    """CPython's test_selectors, over one selector."""
    from test import test_selectors as tests

    if name == STANDARD:
        factory = selectors.EpollSelector
    else:
        def factory(_test=None):
            return hearken_selectors.DefaultSelector(name)

    mixins = (tests.BaseSelectorTestCase, tests.ScalableSelectorMixIn, unittest.TestCase)
    case = type("SelectorTestCase", mixins, {"SELECTOR": factory, "__module__": "test_selectors"})
    return unittest.defaultTestLoader.loadTestsFromTestCase(case)


def epoll_suite(name):
    """CPython's test_epoll, with `hearken.epoll` in place of `select.epoll`."""
    from test import test_epoll as tests

    if name != STANDARD:
        class Epoll(hearken.epoll):
            def __init__(self, sizehint=-1, flags=0):
                super().__init__(sizehint, flags, events=name)

        tests.select = type(select)("select")
        tests.select.__dict__.update(vars(select), epoll=Epoll)
    case = type("TestEPoll", (tests.TestEPoll,), {"__module__": "test_epoll"})
    return unittest.defaultTestLoader.loadTestsFromTestCase(case)


def devpoll_suite(name):
    """CPython's test_devpoll, over the preloaded library."""
    from test import test_devpoll as tests

    # It waits until the reading end of a pipe is writable, which it is on Solaris only.
    tests.DevPollTests.test_timeout_overflow = None
    return unittest.defaultTestLoader.loadTestsFromTestCase(tests.DevPollTests)


def asyncio_suite(name):
    """CPython's test_asyncio, with our selectors or event loops in place of the standard ones."""
    if name.startswith("io:"):
        replace_event_loops(name.removeprefix("io:"))
    elif name != STANDARD:
        def factory():
            return hearken_selectors.DefaultSelector(name)

        for standard in ("DefaultSelector", "EpollSelector", "PollSelector", "SelectSelector"):
            setattr(selectors, standard, factory)
    package = importlib.import_module("test.test_asyncio")
    suite = unittest.TestSuite()
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("test_") and "windows" not in module.name:
            suite.addTests(unittest.defaultTestLoader.loadTestsFromName(f"test.test_asyncio.{module.name}"))
    return suite


def replace_event_loops(events):
    """Makes asyncio create event loops based on completions."""

    class EventLoop(hearken.EventLoop):
        def __init__(self, selector=None):
            if selector is not None:
                selector.close()
            super().__init__(events)

    asyncio.SelectorEventLoop = asyncio.EventLoop = EventLoop
    asyncio.DefaultEventLoopPolicy._loop_factory = EventLoop


SUITES = {"selectors": selectors_suite, "epoll": epoll_suite, "devpoll": devpoll_suite, "asyncio": asyncio_suite}


def run(suite, name):
    """Runs a suite in this process, and prints the result as JSON."""
    output = sys.stdout
    sys.stdout = sys.stderr
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(SUITES[suite](name))
    failed = {test.id(): text for test, text in result.failures + result.errors}
    json.dump({"run": result.testsRun, "skipped": len(result.skipped), "failed": failed}, output)


def run_in_process(suite, name):
    """Runs a suite in another process."""
    command = [sys.executable, __file__, "--run", "--suite", suite, name]
    environment = dict(os.environ)
    if suite == "devpoll":
        environment.update(PYTHONPATH=os.environ["DEVPOLL"], LD_PRELOAD=os.environ["PRELOAD"],
                           HEARKEN_EVENTS=name, HEARKEN_PRELOAD="devpoll")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired as expired:
        text = expired.stderr.decode() if expired.stderr else ""
    except json.JSONDecodeError:
        text = done.stderr
    return {"run": 0, "skipped": 0, "failed": {f"{suite} over {name} did not end": text[-2000:]}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, action="append")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--verbose", action="store_true", help="print the failures")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.suite[0], arguments.names[0])
        return 0
    unexpected = 0
    for suite in arguments.suite or SUITES:
        if suite == "devpoll" and not os.environ.get("DEVPOLL"):
            print("devpoll: skipped, DEVPOLL is not set")
            continue
        # Linux has no /dev/poll of its own.
        standard = run_in_process(suite, STANDARD)["failed"] if suite != "devpoll" else {}
        print(f"{suite} over CPython's own: {len(standard)} failed", flush=True)
        for name in arguments.names or names():
            if name.startswith("io:") and suite != "asyncio":
                continue
            result = run_in_process(suite, name)
            new = {test: text for test, text in result["failed"].items() if test not in standard}
            listed = [test for test in new if is_exception(name, test)]
            print(f"{suite} over {name}: {result['run']} run, {result['skipped']} skipped, "
                  f"{len(listed)} listed exceptions, {len(new) - len(listed)} failed", flush=True)
            for test in sorted(set(new).difference(listed)):
                unexpected += 1
                print(f"  {test}", flush=True)
                if arguments.verbose:
                    print(new[test])
    return 1 if unexpected else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
