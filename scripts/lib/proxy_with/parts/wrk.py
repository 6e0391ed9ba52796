"""Fifty connections of wrk at once, and none of them may see an error."""

import re

from .. import origins
from ..echo import content
from ..stage import need

SECONDS = 3


def wrk(stage):
    program = need("wrk", "wrk")
    url = "http://" + stage.reverse(origins.nginx(stage, {"1k.txt": content(1024), "64k.bin": content(65536)}))
    told = []
    for name in ("1k.txt", "64k.bin"):
        said = stage.run([program, "-t1", "-c50", f"-d{SECONDS}s", f"{url}/{name}"]).decode()
        assert "Socket errors" not in said and "Non-2xx" not in said, said
        made = re.search(r"(\d+) requests in", said)
        assert made and int(made[1]) > 100, said
        told.append(f"{int(made[1]):,} of {name}")
    return f"{' and '.join(told)} on 50 connections, no error"
