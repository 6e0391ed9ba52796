"""The parts by name, in the order of execution."""

from .browser import browser
from .curl import curl
from .forward import forward
from .git import git
from .nginx import nginx
from .websocket import websocket
from .wrk import wrk

PARTS = {
    "curl": curl,
    "forward": forward,
    "nginx": nginx,
    "wrk": wrk,
    "browser": browser,
    "websocket": websocket,
    "git": git,
}
