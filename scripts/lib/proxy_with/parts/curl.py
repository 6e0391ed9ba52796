"""curl through the reverse proxy, to an origin that says what it got."""

import hashlib
import json

from .. import origins
from ..echo import content
from ..stage import need, same, shown

LARGE = 10_000_000


def curl(stage):
    stage.curl = [need("curl", "curl"), "-sS", "--max-time", "60"]
    url = "http://" + stage.reverse(origins.echo(stage))
    gets(stage, url)
    sends(stage, url)
    statuses(stage, url)
    unreachable(stage)
    return "GET, HEAD, HTTP/1.0, 10 MB sent with a length, chunked, with and without Expect; 204, 304, 404, 413, 502"


def gets(stage, url):
    for kind in ("bytes", "chunked", "close"):
        for length in (0, 1, 1000, LARGE):
            for version in ([], ["-0"]):
                got = stage.run([*stage.curl, *version, f"{url}/{kind}/{length}"])
                same(f"{kind}/{length} {version}", got, content(length))
    for kind in ("bytes", "chunked"):
        head = stage.run([*stage.curl, "-I", f"{url}/{kind}/1000"]).decode().lower()
        assert " 200 " in head.splitlines()[0], head
        # How long a chunked one would be nobody knows; it may say that it would be chunked.
        said = "content-length: 1000" in head if kind == "bytes" else "content-length" not in head
        assert said, f"HEAD of {kind}: {head}"
    # Three requests on one connection.
    words = [*stage.curl, "-w", "%{num_connects} ", "-o", "a", "-o", "b", "-o", "c"]
    said = stage.run([*words, f"{url}/bytes/5", f"{url}/chunked/5", f"{url}/bytes/7"]).decode().split()
    same("connections made for three requests", said, ["1", "0", "0"])
    same("the third", (stage.dir / "c").read_bytes(), content(7))


def sends(stage, url):
    large = stage.dir / "large"
    large.write_bytes(content(LARGE))
    digest = hashlib.sha256(content(LARGE)).hexdigest()
    chunked = ["-H", "Transfer-Encoding: chunked"]
    ways = {
        "POST": ["-H", "Expect:", "--data-binary", f"@{large}"],
        "POST with Expect": ["-H", "Expect: 100-continue", "--data-binary", f"@{large}"],
        "POST chunked": [*chunked, "-H", "Expect:", "--data-binary", f"@{large}"],
        "POST chunked with Expect": [*chunked, "-H", "Expect: 100-continue", "--data-binary", f"@{large}"],
        "PUT": ["-T", str(large)],
        "PUT chunked": [*chunked, "-T", str(large)],
        "form": ["-F", f"file=@{large}"],
    }
    for way, words in ways.items():
        said = told(stage.run([*stage.curl, *words, f"{url}/x?y=1"]))
        same(f"{way}: method", said["method"], "PUT" if "PUT" in way else "POST")
        same(f"{way}: target", said["target"], "/x?y=1")
        if way != "form":
            same(f"{way}: content", (said["length"], said["sha256"]), (LARGE, digest))
        names = [name for name, _ in said["fields"]]
        assert not {"content-length", "transfer-encoding"} <= set(names), f"{way}: framed twice: {names}"
    # Without content, and where it is unusual.
    for method in ("GET", "DELETE", "OPTIONS", "PATCH"):
        said = told(stage.run([*stage.curl, "-X", method, "-d", "some", f"{url}/m"]))
        same(method, (said["method"], said["length"]), (method, 4))
    said = told(stage.run([*stage.curl, "-H", "X-Own: 1", "-H", "Host: a.example", f"{url}/m"]))
    fields = dict(said["fields"])
    same("fields", (fields.get("x-own"), fields.get("host")), ("1", "a.example"))
    same("X-Forwarded-For", fields.get("x-forwarded-for"), "127.0.0.1")


def told(answer):
    """What the origin says that it got."""
    try:
        return json.loads(answer)
    except ValueError:
        raise AssertionError(f"not the origin's answer: {shown(answer)}") from None


def statuses(stage, url):
    for status in (200, 204, 301, 304, 401, 404, 418, 500, 503):
        got = stage.run([*stage.curl, "-o", "body", "-w", "%{http_code}", f"{url}/status/{status}"])
        same("status", got.decode(), str(status))
    # One that answers before it has the content, and hears no more of it.
    words = [*stage.curl, "-w", "%{http_code}", "-o", "early", "--data-binary", f"@{stage.dir / 'large'}"]
    got = stage.run([*words, f"{url}/early/413"], expected=None).decode()
    # What curl makes of a connection that is closed while it sends is its affair, if it has the answer.
    same("an early answer", got, "413")


def unreachable(stage):
    nobody = f"http://{stage.reverse(f'127.0.0.1:{stage.port()}')}"
    got = stage.run([*stage.curl, "-o", "none", "-w", "%{http_code}", nobody]).decode()
    assert got in ("502", "503"), f"an origin that is not there: {got}"
