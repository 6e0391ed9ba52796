"""A browser that loads a page with twenty images, and counts those that it could decode."""

import os
import random
import re
import struct
import zlib

from .. import origins
from ..stage import need, same

IMAGES = 20


def browser(stage):
    url = "http://" + stage.reverse(origins.nginx(stage, page()))
    images_loaded(stage, f"{url}/index.html")
    access = (stage.dir / "origin.access").read_text().splitlines()
    fine = {line.split()[1] for line in access if " 200 " in line and "/img/" in line}
    same("images that the origin sent", len(fine), IMAGES)
    return f"{IMAGES} images decoded, and a picture of the page taken"


def images_loaded(stage, url, more=()):
    """Has the page opened, and holds it to having all of its images."""
    program = need("chromium", "chromium")
    # As root there is no sandbox; what is shown is our own.
    words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={stage.dir / 'profile'}", "--virtual-time-budget=20000", *more]
    quiet = {**os.environ, "HOME": str(stage.dir)}
    found = stage.run([*words, "--dump-dom", url], env=quiet).decode()
    counted = re.search(r'id="count">(\d+)<', found)
    assert counted, f"the page's script did not run: {found[:300]}"
    same("images that were loaded", int(counted[1]), IMAGES)
    picture = stage.dir / "page.png"
    picture.unlink(missing_ok=True)
    stage.run([*words, "--window-size=800,600", f"--screenshot={picture}", url], env=quiet)
    assert picture.read_bytes().startswith(b"\x89PNG"), "no picture of the page"


def page():
    """The files of the page: images of 10 to 300 kB, which no compression makes small."""
    random.seed(1)
    files = {f"img/{i}.png": image(50 + 13 * i) for i in range(IMAGES)}
    shown = "".join(f'<img src="/img/{i}.png" width="60">' for i in range(IMAGES))
    files["index.html"] = f"""<!doctype html><title>page</title><p>{shown}<p id="count">none</p><script>
addEventListener('load', () => document.getElementById('count').textContent =
    [...document.images].filter(image => image.naturalWidth > 0).length)
</script>""".encode()
    return files


def image(side):
    """A square of noise."""
    lines = b"".join(b"\0" + random.randbytes(3 * side) for _ in range(side))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(lines)),
              (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks)
