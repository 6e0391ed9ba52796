"""Fifty concurrent connections of wrk without errors."""

import re

from .. import origins
from ..echo import content
from ..stage import need

SECONDS = 3


def wrk(stage):
    program = need("wrk", "wrk")
    url = "http://" + stage.reverse(origins.nginx(stage, {"1k.txt": content(1024), "64k.bin": content(65536)}))
    results = []
    for name in ("1k.txt", "64k.bin"):
        output = stage.run([program, "-t1", "-c50", f"-d{SECONDS}s", f"{url}/{name}"]).decode()
        assert "Socket errors" not in output and "Non-2xx" not in output, output
        requests = re.search(r"(\d+) requests in", output)
        assert requests and int(requests[1]) > 100, output
        results.append(f"{int(requests[1]):,} requests for {name}")
    return f"{' and '.join(results)} on 50 connections, no errors"
