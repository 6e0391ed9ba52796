"""WebSocket echo: all forms of message lengths, pings, concurrent messages, and a close with a reason."""

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
    return stage.run([python, program, "client", f"ws://{proxy}/"]).decode().strip()


def environment():
    """Returns a Python with the websockets library, from a cached virtual environment."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hearken/proxy-with"
    python = cache / VERSION / "bin/python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", cache / VERSION], check=True, capture_output=True)
        if subprocess.run([python, "-c", "import websockets"], capture_output=True).returncode:
            subprocess.run([python, "-m", "pip", "install", "-q", VERSION], check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        output = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        raise Skipped(f"{VERSION} cannot be installed (python3-venv, pip): {output[-1] if output else error}") from None
    return str(python)
