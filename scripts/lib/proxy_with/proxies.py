"""Proxies under test: Hearken, nginx and haproxy as controls, and any other."""

from .stage import Skipped, need

NGINX = """
daemon off; master_process off; pid {dir}/proxy.pid; error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
    access_log off; client_max_body_size 0;
    client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
    uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
    map $http_upgrade $keep {{ default upgrade; "" ""; }}
    upstream servers {{ server {origin}; keepalive 64; }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://servers; proxy_http_version 1.1; proxy_request_buffering off;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $keep;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        }}
    }}
}}
"""

HAPROXY = """
defaults
    mode http
    option forwardfor
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend clients
    bind {listen}
    default_backend servers
backend servers
    http-reuse always
    server origin {origin}
"""


class Proxy:
    """A proxy. `reverse` and `forward` are its commands, or functions that return them."""

    def __init__(self, reverse, forward):
        self._reverse, self._forward = reverse, forward

    def reverse(self, stage, origin):
        return self._start(stage, self._reverse, "proxy", origin)

    def forward(self, stage, ports):
        return self._start(stage, self._forward, "forward", "", ports)

    @staticmethod
    def _start(stage, words, name, origin, ports=()):
        if not words:
            raise Skipped("not supported by this proxy")
        port = stage.port()
        values = {"listen": f"127.0.0.1:{port}", "origin": origin, "dir": str(stage.dir), "ports": ports}
        words = words(stage, values) if callable(words) else [fill(word, values) for word in words]
        stage.start(name, words, port)
        return values["listen"]


def fill(word, values):
    for name in ("listen", "origin", "dir"):
        word = word.replace("{" + name + "}", values[name])
    return word


def hearken(program):
    def forward(stage, values):
        # The origins of these parts are on loopback, which must be allowed explicitly. Ports for CONNECT
        # can only be set in the configuration file.
        conf = stage.dir / "hearken.toml"
        conf.write_text(f"[forward]\nconnect-ports = {list(values['ports'])}\n")
        return [program, "proxy", "--config", str(conf), "--listen", values["listen"], "--forward", "--allow",
                "127.0.0.0/8"]

    return Proxy([program, "proxy", "--listen", "{listen}", "--to", "http://{origin}"], forward)


def nginx():
    return Proxy(nginx_words, None)


def nginx_words(stage, values):
    program = need("nginx", "nginx-light")
    conf = stage.dir / "proxy.conf"
    conf.write_text(NGINX.format(**values))
    return [program, "-p", str(stage.dir), "-c", str(conf), "-e", "stderr"]


def haproxy():
    return Proxy(haproxy_words, None)


def haproxy_words(stage, values):
    program = need("haproxy", "haproxy")
    conf = stage.dir / "proxy.cfg"
    conf.write_text(HAPROXY.format(**values))
    return [program, "-db", "-q", "-f", str(conf)]


def command(reverse, forward):
    """Returns a proxy started by the given commands."""
    return Proxy(reverse, forward)
