"""curl and a browser with a forward proxy: requests to anywhere, and tunnels."""

import json

from .. import origins
from ..echo import content
from ..stage import Skipped, need, same
from .browser import images_loaded, page

LARGE = 5_000_000


def forward(stage):
    curl = [need("curl", "curl"), "-sS", "--max-time", "60"]
    origin = origins.echo(stage)
    tls = stage.port()
    key, certificate = stage.dir / "key.pem", stage.dir / "cert.pem"
    stage.run([need("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt",
               "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
               "-keyout", key, "-out", certificate])
    site = origins.nginx(stage, page(), (certificate, key, tls))
    ports = [port_of(origin), port_of(site), tls]
    proxy = stage.forward(ports)
    curl += ["--proxy", f"http://{proxy}"]

    same("GET", stage.run([*curl, f"http://{origin}/bytes/{LARGE}"]), content(LARGE))
    said = json.loads(stage.run([*curl, "-H", "Transfer-Encoding: chunked", "-d", "abc", f"http://{origin}/x?y"]))
    same("POST", (said["method"], said["target"], said["length"]), ("POST", "/x?y", 3))
    fields = dict(said["fields"])
    same("Host", fields.get("host"), origin)
    assert "proxy-connection" not in fields, f"Proxy-Connection went on: {fields}"

    tunnel = [*curl, "--proxytunnel"]
    same("a tunnel", stage.run([*tunnel, f"http://{origin}/chunked/{LARGE}"]), content(LARGE))
    got = stage.run([*curl, "-k", f"https://127.0.0.1:{tls}/index.html"])
    same("https", got, page()["index.html"])
    # No port that tunnels may go to.
    refused = stage.run([*tunnel, "-o", "refused", "-w", "%{http_connect}", f"http://127.0.0.1:{stage.port()}/"],
                        expected=None).decode()
    assert refused in ("403", "405"), f"a tunnel to another port: {refused}"

    try:
        more = [f"--proxy-server=http://{proxy}", "--proxy-bypass-list=<-loopback>", "--ignore-certificate-errors"]
        images_loaded(stage, f"http://{site}/index.html", more)
        images_loaded(stage, f"https://127.0.0.1:{tls}/index.html", more)
        told = "; a browser, http and https"
    except Skipped as why:
        told = f" (without a browser: {why})"
    return f"curl: GET, POST, CONNECT, https{told}"


def port_of(address):
    return int(address.rpartition(":")[2])
