"""Event delivery for Linux: selectors, `epoll` and asyncio event loops over every event mechanism.

    >>> import asyncio, hearken
    >>> async def main():
    ...     await asyncio.sleep(0.01)
    ...     return "done"
    >>> hearken.run(main())
    'done'
"""

from . import selectors
from ._epoll import epoll
from ._hearken import mechanisms
from ._loops import EventLoop, SelectorEventLoop, new_event_loop, run

__all__ = ["EventLoop", "SelectorEventLoop", "epoll", "mechanisms", "new_event_loop", "run", "selectors"]
