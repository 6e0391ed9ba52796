"""What can be put between: Hearken, two that are known to be right, and any other."""

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
    """A proxy that `reverse` and `forward` start: each a list of words, or a function that makes one."""

    def __init__(self, reverse, forward):
        self._reverse, self._forward = reverse, forward

    def reverse(self, stage, origin):
        return self._start(stage, self._reverse, "proxy", origin)

    def forward(self, stage):
        return self._start(stage, self._forward, "forward", "")

    @staticmethod
    def _start(stage, words, name, origin):
        if not words:
            raise Skipped("the proxy that was chosen does not do this")
        port = stage.port()
        values = {"listen": f"127.0.0.1:{port}", "origin": origin, "dir": str(stage.dir)}
        words = words(stage, values) if callable(words) else [fill(word, values) for word in words]
        stage.start(name, words, port)
        return values["listen"]


def fill(word, values):
    for name, value in values.items():
        word = word.replace("{" + name + "}", value)
    return word


def hearken(program):
    both = [program, "proxy", "--listen", "{listen}"]
    # The origins of these parts are on loopback, where a forward proxy does not go unless it is told to.
    return Proxy([*both, "--to", "http://{origin}"], [*both, "--forward", "--allow-private"])


def nginx():
    return Proxy(lambda stage, values: nginx_words(stage, values), None)


def nginx_words(stage, values):
    program = need("nginx", "nginx-light")
    conf = stage.dir / "proxy.conf"
    conf.write_text(NGINX.format(**values))
    return [program, "-p", str(stage.dir), "-c", str(conf), "-e", "stderr"]


def haproxy():
    return Proxy(lambda stage, values: haproxy_words(stage, values), None)


def haproxy_words(stage, values):
    program = need("haproxy", "haproxy")
    conf = stage.dir / "proxy.cfg"
    conf.write_text(HAPROXY.format(**values))
    return [program, "-db", "-q", "-f", str(conf)]


def command(reverse, forward):
    return Proxy(reverse, forward)
