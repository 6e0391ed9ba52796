"""curl through the reverse proxy to an origin that reports the requests it receives."""

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
        # The length of a chunked response is unknown; a HEAD response may announce the chunked coding.
        valid = "content-length: 1000" in head if kind == "bytes" else "content-length" not in head
        assert valid, f"HEAD of {kind}: {head}"
    # Three requests on one connection.
    words = [*stage.curl, "-w", "%{num_connects} ", "-o", "a", "-o", "b", "-o", "c"]
    connects = stage.run([*words, f"{url}/bytes/5", f"{url}/chunked/5", f"{url}/bytes/7"]).decode().split()
    same("connections opened for three requests", connects, ["1", "0", "0"])
    same("third response", (stage.dir / "c").read_bytes(), content(7))


def sends(stage, url):
    large = stage.dir / "large"
    large.write_bytes(content(LARGE))
    digest = hashlib.sha256(content(LARGE)).hexdigest()
    chunked = ["-H", "Transfer-Encoding: chunked"]
    methods = {
        "POST": ["-H", "Expect:", "--data-binary", f"@{large}"],
        "POST with Expect": ["-H", "Expect: 100-continue", "--data-binary", f"@{large}"],
        "POST chunked": [*chunked, "-H", "Expect:", "--data-binary", f"@{large}"],
        "POST chunked with Expect": [*chunked, "-H", "Expect: 100-continue", "--data-binary", f"@{large}"],
        "PUT": ["-T", str(large)],
        "PUT chunked": [*chunked, "-T", str(large)],
        "form": ["-F", f"file=@{large}"],
    }
    for name, words in methods.items():
        request = parse(stage.run([*stage.curl, *words, f"{url}/x?y=1"]))
        same(f"{name}: method", request["method"], "PUT" if "PUT" in name else "POST")
        same(f"{name}: target", request["target"], "/x?y=1")
        if name != "form":
            same(f"{name}: content", (request["length"], request["sha256"]), (LARGE, digest))
        names = [field for field, _ in request["fields"]]
        assert not {"content-length", "transfer-encoding"} <= set(names), f"{name}: framed twice: {names}"
    # Content in methods that rarely have any.
    for method in ("GET", "DELETE", "OPTIONS", "PATCH"):
        request = parse(stage.run([*stage.curl, "-X", method, "-d", "some", f"{url}/m"]))
        same(method, (request["method"], request["length"]), (method, 4))
    request = parse(stage.run([*stage.curl, "-H", "X-Own: 1", "-H", "Host: a.example", f"{url}/m"]))
    fields = dict(request["fields"])
    same("fields", (fields.get("x-own"), fields.get("host")), ("1", "a.example"))
    same("X-Forwarded-For", fields.get("x-forwarded-for"), "127.0.0.1")


def parse(response):
    """Parses the request in the response of the origin."""
    try:
        return json.loads(response)
    except ValueError:
        raise AssertionError(f"unexpected response: {shown(response)}") from None


def statuses(stage, url):
    for status in (200, 204, 301, 304, 401, 404, 418, 500, 503):
        got = stage.run([*stage.curl, "-o", "body", "-w", "%{http_code}", f"{url}/status/{status}"])
        same("status", got.decode(), str(status))
    # The origin responds before it has the content, and closes the connection.
    words = [*stage.curl, "-w", "%{http_code}", "-o", "early", "--data-binary", f"@{stage.dir / 'large'}"]
    got = stage.run([*words, f"{url}/early/413"], expected=None).decode()
    # curl may report an error because the connection is closed while it sends. Only the response matters.
    same("early response", got, "413")


def unreachable(stage):
    url = f"http://{stage.reverse(f'127.0.0.1:{stage.port()}')}"
    got = stage.run([*stage.curl, "-o", "none", "-w", "%{http_code}", url]).decode()
    assert got in ("502", "503"), f"unreachable origin: {got}"
