"""nginx as origin: files, ranges, validators and content compressed on the fly."""

import gzip
import re

from .. import origins
from ..echo import content
from ..stage import need, same

SIZES = (0, 1, 1024, 65536, 1_000_000, 20_000_000)


def nginx(stage):
    curl = [need("curl", "curl"), "-sS", "--max-time", "60"]
    files = {f"{size}.bin": content(size) for size in SIZES}
    files["1k.txt"] = content(1024)
    files["text.txt"] = content(300_000)
    url = "http://" + stage.reverse(origins.nginx(stage, files))
    for size in SIZES:
        same(f"{size} bytes", stage.run([*curl, f"{url}/{size}.bin"]), content(size))

    def status(*words):
        return stage.run([*curl, "-o", "body", "-w", "%{http_code}", *words]).decode()

    same("range", status("-r", "100-199", f"{url}/65536.bin"), "206")
    same("content of a range", (stage.dir / "body").read_bytes(), content(65536)[100:200])
    same("two ranges", status("-r", "0-9,100-109", f"{url}/65536.bin"), "206")
    assert b"\r\nContent-Range: bytes 100-109/65536" in (stage.dir / "body").read_bytes(), "multipart"
    same("range not satisfiable", status("-r", "70000-", f"{url}/65536.bin"), "416")

    head = stage.run([*curl, "-I", f"{url}/1024.bin"]).decode()
    tag = re.search(r"(?im)^etag: (\S+)", head)
    assert tag, f"no ETag: {head}"
    same("not modified", status("-H", f"If-None-Match: {tag[1]}", f"{url}/1024.bin"), "304")
    same("precondition failed", status("-H", 'If-Match: "other"', f"{url}/1024.bin"), "412")

    # Compressed on the fly, so chunked, or terminated by closing the connection for HTTP/1.0.
    for version in ([], ["-0"]):
        got = stage.run([*curl, *version, "-H", "Accept-Encoding: gzip", f"{url}/text.txt"])
        same("gzip", gzip.decompress(got), content(300_000))
    same("redirection", status(f"{url}/old"), "301")
    same("target of the redirection", stage.run([*curl, "-L", f"{url}/old"]), content(1024))
    same("not found", status(f"{url}/none"), "404")
    same("service unavailable", status(f"{url}/broken"), "503")
    same("content of the error", (stage.dir / "body").read_bytes(), b"out of order\n")
    same("no content", status(f"{url}/empty"), "204")
    same("method not allowed", status("-X", "DELETE", f"{url}/1k.txt"), "405")
    return f"{len(SIZES)} files up to 20 MB, ranges, 304, 412, gzip chunked and to HTTP/1.0, redirection, errors"
