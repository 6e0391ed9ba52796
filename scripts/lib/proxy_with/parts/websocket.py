"""An echo by WebSocket: messages of every form of length, pings, many at once, a close with its reason."""

import os
import subprocess
import sys
from pathlib import Path

from ..stage import Skipped

VERSION = "websockets==13.1"


def websocket(stage):
    python = environment()
    program = str(Path(__file__).parent.parent / "ws.py")
    port = stage.port()
    stage.start("echo", [python, program, "serve", str(port)], port)
    proxy = stage.reverse(f"127.0.0.1:{port}")
    return stage.run([python, program, "ask", f"ws://{proxy}/"]).decode().strip()


def environment():
    """A Python that has the library; it is kept, since it does not change."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hearken/proxy-with"
    python = cache / VERSION / "bin/python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", cache / VERSION], check=True, capture_output=True)
        if subprocess.run([python, "-c", "import websockets"], capture_output=True).returncode:
            subprocess.run([python, "-m", "pip", "install", "-q", VERSION], check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError) as why:
        said = (getattr(why, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        raise Skipped(f"{VERSION} cannot be installed (python3-venv, pip): {said[-1] if said else why}") from None
    return str(python)
