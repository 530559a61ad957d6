"""Makes a page with twelve images, a style and a script, which tells what was loaded: web_page.py DIRECTORY"""
import pathlib
import random
import struct
import sys
import zlib

SIDE = 200


def chunk(kind, data):
    return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))


def png(seed):
    """Noise, so that it is large: about 120 kB."""
    noise = random.Random(seed)
    rows = b"".join(b"\0" + noise.randbytes(3 * SIDE) for _ in range(SIDE))
    header = struct.pack("!IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


site = pathlib.Path(sys.argv[1])
for number in range(12):
    (site / f"image-{number}.png").write_bytes(png(number))
(site / "style.css").write_text("body { background: #abc } img { margin: 2px }")
(site / "script.js").write_text("window.scripts = 1;")
images = "".join(f'<img src="image-{number}.png">' for number in range(12))
(site / "page.html").write_text(
    f"""<!doctype html><title>page</title><link rel="stylesheet" href="style.css"><script src="script.js"></script>
{images}<p id="told"></p><script>
addEventListener("load", () => {{
    const whole = [...document.images].filter(image => image.naturalWidth == {SIDE}).length;
    document.getElementById("told").textContent = `${{whole}} images, ${{window.scripts}} script`;
}});
</script>"""
)
