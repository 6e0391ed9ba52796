"""An origin that says what it got: `echo.py PORT`.

Any path but those below is answered with JSON: method, target, fields, and length and SHA-256 of the
content, however it was framed.

    /bytes/N    N bytes, with a length
    /chunked/N  N bytes, chunked, with a trailer
    /close/N    N bytes, ended by the end of the connection
    /status/N   an empty answer with that status
    /early/N    answers with that status before it has read any content, and closes
"""

import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def content(length):
    """So many bytes, none of which can stand in for another of the same block."""
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

    def answer(self):
        kind, _, number = self.path.strip("/").partition("/")
        number = int(number) if number.isdigit() else 0
        if kind == "early":
            self.close_connection = True
            self.say(number, b"too much", {"Connection": "close"})
            return
        got = self.read()
        if kind == "bytes":
            self.say(200, content(number), {"ETag": '"one"'})
        elif kind == "status":
            self.say(number, b"" if number != 404 else b"not here\n", {})
        elif kind == "chunked":
            self.chunked(content(number))
        elif kind == "close":
            self.close_connection = True
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content(number))
        else:
            fields = [[name.lower(), value] for name, value in self.headers.items()]
            said = {"method": self.command, "target": self.path, "fields": fields, "length": len(got),
                    "sha256": hashlib.sha256(got).hexdigest()}
            self.say(200, json.dumps(said).encode(), {"Content-Type": "application/json"})

    def say(self, status, body, fields):
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

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = answer


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
