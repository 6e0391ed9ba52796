"""An origin that reports the requests it receives: `echo.py PORT`.

It responds with JSON: method, target, fields, and length and SHA-256 of the content, for any framing. Other
responses are:

    /bytes/N    N bytes, with Content-Length
    /chunked/N  N bytes, chunked, with a trailer
    /close/N    N bytes, terminated by closing the connection
    /status/N   an empty response with status N
    /early/N    a response with status N before the content is read; closes the connection
"""

import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def content(length):
    """Returns `length` bytes in which every group of eight bytes of a block is unique."""
    block = b"".join(b"%07d\n" % i for i in range(8192))
    return (block * (length // len(block) + 1))[:length]


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def read(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline() not in (b"\r\n", b""):
            pass
        return whole

    def respond(self):
        kind, _, number = self.path.strip("/").partition("/")
        number = int(number) if number.isdigit() else 0
        if kind == "early":
            self.close_connection = True
            self.send(number, b"too much", {"Connection": "close"})
            return
        received = self.read()
        if kind == "bytes":
            self.send(200, content(number), {"ETag": '"one"'})
        elif kind == "status":
            self.send(number, b"" if number != 404 else b"not here\n", {})
        elif kind == "chunked":
            self.chunked(content(number))
        elif kind == "close":
            self.close_connection = True
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content(number))
        else:
            fields = [[name.lower(), value] for name, value in self.headers.items()]
            request = {"method": self.command, "target": self.path, "fields": fields, "length": len(received),
                               "sha256": hashlib.sha256(received).hexdigest()}
            self.send(200, json.dumps(request).encode(), {"Content-Type": "application/json"})

    def send(self, status, body, fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status not in (204, 304):
            self.wfile.write(body)

    def chunked(self, body):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Trailer", "X-Sum")
        self.end_headers()
        if self.command == "HEAD":
            return
        for at in range(0, len(body), 5000):
            piece = body[at:at + 5000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\nX-Sum: %d\r\n\r\n" % len(body))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = respond


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
