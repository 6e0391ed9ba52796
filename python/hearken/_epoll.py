"""`epoll`: the interface of `select.epoll` over every mechanism."""

import errno
import os
import select
import weakref

from . import _hearken

# The flags of poll(2), which readiness has too.
_PRIORITY = select.EPOLLPRI
_REPORTED = select.EPOLLIN | _PRIORITY | select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP
_KNOWN_FLAGS = _REPORTED | select.EPOLLRDNORM | select.EPOLLWRNORM | select.EPOLLRDBAND
_KNOWN_FLAGS |= select.EPOLLWRBAND | select.EPOLLMSG | select.EPOLLRDHUP | select.EPOLLONESHOT
_KNOWN_FLAGS |= select.EPOLLET | select.EPOLLEXCLUSIVE
_READ_CLOSED = 32
_INPUT = select.EPOLLIN | select.EPOLLRDNORM | select.EPOLLRDHUP
_OUTPUT = select.EPOLLOUT | select.EPOLLWRNORM

# The open objects by the number of their descriptor, for `fromfd`.
_open = weakref.WeakValueDictionary()


class _Watched:
    """The state of a poller, which objects made by `fromfd` share."""

    def __init__(self, events):
        self.poller = _hearken.Poller(events, level=False)
        self.masks = {}
        # Descriptors that were reported and are level-triggered. Edge-triggered mechanisms do not report
        # them again, so that poll(2) checks them before each wait.
        self.reported = set()

    def close(self):
        _open.pop(self.poller.descriptor, None)
        self.poller = None


class epoll:
    """An object with the methods of `select.epoll`, over any mechanism.

        >>> import hearken, os, select
        >>> reader, writer = os.pipe()
        >>> with hearken.epoll(events="poll") as poller:
        ...     poller.register(writer, select.EPOLLOUT)
        ...     poller.poll(1) == [(writer, select.EPOLLOUT)]
        True
        >>> os.close(reader); os.close(writer)

    `sizehint` and `flags` are accepted like those of `select.epoll`. `events` names the mechanism. Without it,
    the environment variable `HEARKEN_EVENTS` does, or the fastest mechanism is used.

    `EPOLLET` needs an edge-triggered mechanism. Level-triggered ones refuse it with `EOPNOTSUPP`.
    """

    def __init__(self, sizehint=-1, flags=0, *, events=None):
        if sizehint != -1 and sizehint <= 0:
            raise ValueError("sizehint must be positive or -1")
        if flags & ~select.EPOLL_CLOEXEC:
            raise OSError(errno.EINVAL, "invalid flags")
        self._watched = _Watched(events)
        self._publish()

    def _publish(self):
        descriptor = self._watched.poller.descriptor
        if descriptor is not None:
            _open.setdefault(descriptor, self)

    @classmethod
    def fromfd(cls, fd):
        """Returns another object for the open `hearken.epoll` whose `fileno()` is `fd`.

        Raises `OSError` (`EINVAL`) for other descriptors, such as those of `select.epoll`.
        """
        original = _open.get(fd)
        if original is None:
            raise OSError(errno.EINVAL, f"descriptor {fd} belongs to no open hearken.epoll")
        copy = cls.__new__(cls)
        copy._watched = original._watched
        return copy

    def _state(self):
        if self._watched is None:
            raise ValueError("I/O operation on closed epoll object")
        if self._watched.poller is None:
            # Another object for the same descriptor was closed.
            raise OSError(errno.EBADF, "Bad file descriptor")
        return self._watched

    @property
    def closed(self):
        """Whether the object is closed."""
        return self._watched is None

    @property
    def events(self):
        """The name of the mechanism."""
        return self._state().poller.events

    def close(self):
        """Closes the object. Further calls do nothing."""
        watched, self._watched = self._watched, None
        if watched is not None and watched.poller is not None:
            watched.close()

    def __enter__(self):
        self._state()
        return self

    def __exit__(self, exc_type=None, exc_value=None, traceback=None):
        self.close()

    def fileno(self):
        """Returns the descriptor by which another event loop can watch this object.

        Raises `OSError` (`EOPNOTSUPP`) if the mechanism has none.
        """
        poller = self._state().poller
        if poller.descriptor is None:
            raise OSError(errno.EOPNOTSUPP, f"{poller.events} has no descriptor")
        return poller.descriptor

    def register(self, fd, eventmask=None):
        """Registers a descriptor, or an object with `fileno()`.

        Without `eventmask`, for `EPOLLIN`, `EPOLLOUT`, and `EPOLLPRI` if the mechanism reports it. Raises
        `FileExistsError` if the descriptor is registered.
        """
        state = self._state()
        number = _descriptor(fd)
        if eventmask is None:
            eventmask = select.EPOLLIN | select.EPOLLOUT
            eventmask |= _PRIORITY if state.poller.reports_priority else 0
        if number in state.masks:
            raise FileExistsError(errno.EEXIST, "File exists")
        self._declare(state, number, eventmask)

    def modify(self, fd, eventmask):
        """Replaces the events of a descriptor. Raises `FileNotFoundError` if it is not registered."""
        state = self._state()
        number = _descriptor(fd)
        if number not in state.masks:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        self._declare(state, number, eventmask)

    def unregister(self, fd):
        """Removes a descriptor. Raises `FileNotFoundError` if it is not registered."""
        state = self._state()
        number = _descriptor(fd)
        if state.masks.pop(number, None) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        state.reported.discard(number)
        state.poller.remove(number)
        _require_open(number)

    def _declare(self, state, number, mask):
        _require_open(number)
        if mask & ~_KNOWN_FLAGS:
            raise OSError(errno.EINVAL, "unknown event flags")
        if mask & select.EPOLLET and not state.poller.is_edge:
            reason = f"EPOLLET: {state.poller.events} is not edge-triggered"
            raise OSError(errno.EOPNOTSUPP, reason)
        state.poller.set(number, _interest(mask))
        state.masks[number] = mask
        state.reported.discard(number)

    def poll(self, timeout=None, maxevents=-1):
        """Waits for events, and returns a list of descriptors and their events.

        `timeout` is in seconds. None or a negative one waits indefinitely.
        """
        state = self._state()
        if maxevents == -1:
            maxevents = max(len(state.masks), 1)
        elif maxevents <= 0:
            raise ValueError(f"maxevents must be greater than 0, got {maxevents}")
        if timeout is not None and timeout < 0:
            timeout = None
        ready = self._still_ready(state, maxevents)
        if len(ready) < maxevents:
            wait = 0 if ready else timeout
            for number, readiness in state.poller.wait(wait, maxevents - len(ready)):
                if number not in ready:
                    self._report(state, number, readiness, ready)
        return list(ready.items())

    def _still_ready(self, state, maxevents):
        ready = {}
        if not state.reported:
            return ready
        check = select.poll()
        for number in state.reported:
            check.register(number, state.masks[number] & _KNOWN_FLAGS & 0xFFFF)
        events = dict(check.poll(0))
        state.reported.intersection_update(events)
        for number, flags in events.items():
            if len(ready) == maxevents:
                break
            if not flags & select.POLLNVAL:
                readiness = flags & _REPORTED
                readiness |= _READ_CLOSED if flags & select.POLLRDHUP else 0
                self._report(state, number, readiness, ready)
        return ready

    def _report(self, state, number, readiness, ready):
        mask = state.masks.get(number)
        if mask is None:
            return
        events = readiness & _REPORTED & (mask | select.EPOLLERR | select.EPOLLHUP)
        if mask & select.EPOLLRDHUP and readiness & _READ_CLOSED:
            events |= select.EPOLLRDHUP
        if not events:
            return
        ready[number] = events
        if mask & select.EPOLLONESHOT:
            state.poller.set(number, 0)
            state.reported.discard(number)
        elif state.poller.is_edge and not mask & select.EPOLLET:
            state.reported.add(number)


def _descriptor(fd):
    if isinstance(fd, int):
        number = fd
    elif hasattr(fd, "fileno"):
        number = fd.fileno()
    else:
        raise TypeError("argument must be an int, or have a fileno() method")
    if not isinstance(number, int):
        raise TypeError("fileno() returned a non-integer")
    if number < 0:
        raise ValueError(f"file descriptor cannot be a negative integer ({number})")
    return number


def _require_open(number):
    # Fails with EBADF for a closed descriptor, like epoll_ctl(2).
    os.get_inheritable(number)


def _interest(mask):
    wanted = 1 if mask & _INPUT else 0
    wanted |= 2 if mask & _PRIORITY else 0
    wanted |= 4 if mask & _OUTPUT else 0
    return wanted
