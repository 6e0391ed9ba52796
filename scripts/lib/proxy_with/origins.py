"""Origins: nginx, and a server that reports the requests it receives."""

import os
import sys
from pathlib import Path

from .stage import need

NGINX = """
daemon off; master_process off; pid {dir}/origin.pid; error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
    log_format plain '$request_method $uri $status $body_bytes_sent';
    access_log {dir}/origin.access plain;
    client_body_temp_path {dir}/o1; proxy_temp_path {dir}/o2; fastcgi_temp_path {dir}/o3;
    uwsgi_temp_path {dir}/o4; scgi_temp_path {dir}/o5;
    types {{ text/html html; image/png png; text/plain txt; }}
    sendfile on;
    gzip on; gzip_types text/plain; gzip_min_length 0; gzip_proxied any; gzip_http_version 1.0;
    server {{
        listen 127.0.0.1:{port};
        {tls}
        root {root};
        location = /old {{ return 301 /1k.txt; }}
        location = /broken {{ return 503 "out of order\\n"; }}
        location = /empty {{ return 204; }}
    }}
}}
"""


def echo(stage):
    """Starts the origin that reports the requests it receives."""
    port = stage.port()
    stage.start("echo", [sys.executable, str(Path(__file__).with_name("echo.py")), str(port)], port)
    return f"127.0.0.1:{port}"


def nginx(stage, files, tls=None):
    """Starts nginx with the given files; `tls` is a certificate, its key and a port."""
    program = need("nginx", "nginx-light")
    root = stage.dir / "root"
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    port, tls_lines = stage.port(), ""
    if tls:
        tls_lines = f"listen 127.0.0.1:{tls[2]} ssl; ssl_certificate {tls[0]}; ssl_certificate_key {tls[1]};"
    conf = stage.dir / "origin.conf"
    # If started by root, nginx would switch to a user without access to the files.
    user = "user root;\n" if os.geteuid() == 0 else ""
    conf.write_text(user + NGINX.format(dir=stage.dir, port=port, tls=tls_lines, root=root))
    stage.start("origin", [program, "-p", str(stage.dir), "-c", str(conf), "-e", "stderr"], port)
    return f"127.0.0.1:{port}"
