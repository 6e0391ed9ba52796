"""A browser that loads a page with twenty images and counts the decoded ones."""

import os
import random
import re
import struct
import zlib

from .. import origins
from ..stage import need, same

IMAGES = 20


def browser(stage):
    url = "http://" + stage.reverse(origins.nginx(stage, page_files()))
    check_images(stage, f"{url}/index.html")
    access = (stage.dir / "origin.access").read_text().splitlines()
    sent = {line.split()[1] for line in access if " 200 " in line and "/img/" in line}
    same("images sent by the origin", len(sent), IMAGES)
    return f"{IMAGES} images decoded, screenshot taken"


def check_images(stage, url, more=()):
    """Opens the page and checks that all of its images are loaded."""
    program = need("chromium", "chromium")
    # There is no sandbox for root; the page is trusted.
    words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={stage.dir / 'profile'}", "--virtual-time-budget=20000", *more]
    environment = {**os.environ, "HOME": str(stage.dir)}
    dom = stage.run([*words, "--dump-dom", url], env=environment).decode()
    counted = re.search(r'id="count">(\d+)<', dom)
    assert counted, f"the script of the page did not run: {dom[:300]}"
    same("loaded images", int(counted[1]), IMAGES)
    screenshot = stage.dir / "page.png"
    screenshot.unlink(missing_ok=True)
    stage.run([*words, "--window-size=800,600", f"--screenshot={screenshot}", url], env=environment)
    assert screenshot.read_bytes().startswith(b"\x89PNG"), "no screenshot of the page"


def page_files():
    """Returns the files of the page: incompressible images of 10 to 300 kB."""
    random.seed(1)
    files = {f"img/{i}.png": image(50 + 13 * i) for i in range(IMAGES)}
    shown = "".join(f'<img src="/img/{i}.png" width="60">' for i in range(IMAGES))
    files["index.html"] = f"""<!doctype html><title>page</title><p>{shown}<p id="count">none</p><script>
addEventListener('load', () => document.getElementById('count').textContent =
    [...document.images].filter(image => image.naturalWidth > 0).length)
</script>""".encode()
    return files


def image(side):
    """Returns a square of noise as PNG."""
    lines = b"".join(b"\0" + random.randbytes(3 * side) for _ in range(side))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(lines)),
              (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks)
