"""A WebSocket echo server and client: `ws.py serve PORT`, `ws.py client URL`."""

import asyncio
import sys

import websockets

SIZES = (0, 1, 125, 126, 127, 65535, 65536, 1_000_000)


async def echo(connection):
    await connection.send("welcome")
    async for message in connection:
        if message == "leave":
            await connection.close(4001, "requested")
        else:
            await connection.send(message)


async def serve(port):
    async with websockets.serve(echo, "127.0.0.1", port, max_size=None):
        await asyncio.get_running_loop().create_future()


async def one(url, sizes):
    async with websockets.connect(url, max_size=None) as connection:
        assert await connection.recv() == "welcome"
        for size in sizes:
            for message in ("t" * size, bytes(i % 251 for i in range(size))):
                await connection.send(message)
                assert await connection.recv() == message, f"the echo of {size} bytes differs"
        await asyncio.wait_for(await connection.ping(), 10)
        # Sends all messages at once, so that both directions are full.
        await asyncio.gather(*(connection.send(str(i) * 20_000) for i in range(50)))
        for i in range(50):
            assert await connection.recv() == str(i) * 20_000
        await connection.send("leave")
        await connection.wait_closed()
        assert (connection.close_code, connection.close_reason) == (4001, "requested"), connection.close_code


async def client(url):
    await one(url, SIZES)
    await asyncio.gather(*(one(url, SIZES[:6]) for _ in range(20)))
    print(f"messages of 0 to {SIZES[-1]:,} bytes, text and binary, 20 concurrent connections, pings, close with a reason")


if __name__ == "__main__":
    role, address = sys.argv[1:]
    asyncio.run(serve(int(address)) if role == "serve" else asyncio.wait_for(client(address), 100))
