"""curl and a browser with a forward proxy: absolute-form requests and tunnels."""

import json

from .. import origins
from ..echo import content
from ..stage import Skipped, need, same
from .browser import check_images, page_files

LARGE = 5_000_000


def forward(stage):
    curl = [need("curl", "curl"), "-sS", "--max-time", "60"]
    origin = origins.echo(stage)
    tls = stage.port()
    key, certificate = stage.dir / "key.pem", stage.dir / "cert.pem"
    stage.run([need("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt",
               "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
               "-keyout", key, "-out", certificate])
    site = origins.nginx(stage, page_files(), (certificate, key, tls))
    ports = [port_of(origin), port_of(site), tls]
    proxy = stage.forward(ports)
    curl += ["--proxy", f"http://{proxy}"]

    same("GET", stage.run([*curl, f"http://{origin}/bytes/{LARGE}"]), content(LARGE))
    request = json.loads(stage.run([*curl, "-H", "Transfer-Encoding: chunked", "-d", "abc", f"http://{origin}/x?y"]))
    same("POST", (request["method"], request["target"], request["length"]), ("POST", "/x?y", 3))
    fields = dict(request["fields"])
    same("Host", fields.get("host"), origin)
    assert "proxy-connection" not in fields, f"Proxy-Connection was forwarded: {fields}"

    tunnel = [*curl, "--proxytunnel"]
    same("tunnel", stage.run([*tunnel, f"http://{origin}/chunked/{LARGE}"]), content(LARGE))
    got = stage.run([*curl, "-k", f"https://127.0.0.1:{tls}/index.html"])
    same("https", got, page_files()["index.html"])
    # A port to which tunnels are not allowed.
    rejected = stage.run([*tunnel, "-o", "rejected", "-w", "%{http_connect}", f"http://127.0.0.1:{stage.port()}/"],
                         expected=None).decode()
    assert rejected in ("403", "405"), f"tunnel to another port: {rejected}"

    try:
        more = [f"--proxy-server=http://{proxy}", "--proxy-bypass-list=<-loopback>", "--ignore-certificate-errors"]
        check_images(stage, f"http://{site}/index.html", more)
        check_images(stage, f"https://127.0.0.1:{tls}/index.html", more)
        browser = "; a browser with http and https"
    except Skipped as reason:
        browser = f" (without a browser: {reason})"
    return f"curl: GET, POST, CONNECT, https{browser}"


def port_of(address):
    return int(address.rpartition(":")[2])
