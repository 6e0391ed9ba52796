"""A server for `compare.py`: server.py LOOP KIND. Prints its port, then its CPU time for each line it reads."""

import asyncio
import os
import resource
import sys
import threading

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, world!"


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Http(asyncio.Protocol):
    """Parses requests with httptools, as uvicorn does, and answers each."""

    def connection_made(self, transport):
        import httptools

        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.headers = []

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_header(self, name, value):
        self.headers.append((name, value))

    def on_message_complete(self):
        self.headers.clear()
        self.transport.write(RESPONSE)


async def echo_stream(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


def new_loop(name):
    if name == "asyncio":
        return asyncio.SelectorEventLoop()
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    import hearken

    kind, events = name.split(":", 1)
    return hearken.new_event_loop(events, completions=kind == "completions")


async def main(kind):
    loop = asyncio.get_running_loop()
    if kind == "streams":
        server = await asyncio.start_server(echo_stream, "127.0.0.1", 0)
    else:
        server = await loop.create_server(Echo if kind == "echo" else Http, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    threading.Thread(target=report, daemon=True).start()
    await asyncio.Event().wait()


def report():
    """Prints user and system time for each line of standard input, and ends the process at its end."""
    for _ in sys.stdin:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(usage.ru_utime, usage.ru_stime, flush=True)
    os._exit(0)


if __name__ == "__main__":
    name, kind = sys.argv[1:]
    with asyncio.Runner(loop_factory=lambda: new_loop(name)) as runner:
        runner.run(main(kind))
