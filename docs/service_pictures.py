"""Make the pictures of the stewards' pages. ``python docs/service_pictures.py``

It simulates two streams, lets a service's worker take their steps, and lets Chromium (``make browser``) take pictures
of the pages. The data are invented; the noise is real, so pictures differ a little each time. One minute.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "service" / "pages"))
from chromium import Browser

from dpstream.service.desk import Desk, Person
from dpstream.service.desk.worker import Worker
from dpstream.service.pages.serving import server_of
from dpstream.service.releases import listen

OUT = Path(__file__).parent / "images" / "service"
#: Name, path, width and height of the window, dark or not.
PICTURES = (
    ("streams", "/", 1100, 760, False),
    ("held", "/held?stream=evictions&step=12", 390, 1500, False),
    ("board", "/board?stream=evictions&amount=0.5&wish=total+within+2+%25", 1100, 1000, True),
)
MAX_BYTES = 58_000


def service(folder: Path) -> Desk:
    """Two streams; of the first one the last step waits for a second person."""
    program = Path(sys.executable).with_name("dpstream")
    for name, kind, *size in (("evictions", "evictions", "--steps", 12), ("turnover", "stock", "--steps", 8)):
        words = [program, "simulate", kind, *size, "--out", folder / name]
        subprocess.run([*map(str, words)], check=True, stdout=subprocess.DEVNULL)
    config = folder / "evictions" / "dpstream.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(f"{text}\n" + ("" if "[output]" in text else "[output]\n") + "approve = true\n")
    streams = "".join(
        f'[[stream]]\nconfig = "{name}/dpstream.toml"\napprovals = {needed}\n'
        for name, needed in (("evictions", 2), ("turnover", 1))
    )
    (folder / "service.toml").write_text(f'[service]\nname = "Statistics office of Example"\n{streams}')
    desk = Desk.open(folder)
    for name in ("Anna Meier", "Ben Okafor"):
        desk.add_person(desk.operator("owner"), name, ["approver"])
    anna, ben = (Person(name, frozenset(["approver"])) for name in ("Anna Meier", "Ben Okafor"))
    work(desk)
    for person in (anna, ben):
        desk.decide(person, "evictions", range(1, 12), "approve")
    work(desk)
    desk.decide(anna, "evictions", 12, "approve")
    return desk


def work(desk: Desk) -> None:
    worker = Worker(desk)
    while worker.round():
        pass
    worker.close()


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        desk = service(Path(scratch))
        server, listening = server_of(desk), listen("127.0.0.1", 0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.1)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        browser = Browser(Path(scratch))
        browser.size(1100)
        browser.go(f"{address}/sign-in")
        browser.fill("[name=once]", desk.make_sign_in_token(desk.operator("owner"), "Ben Okafor"))
        browser.click("main button")
        for name, path, wide, high, dark in PICTURES:
            browser.size(wide, high, dark=dark)
            browser.go(address + path)
            browser.picture(Path(scratch) / "shot.png", whole=False)
            save(Image.open(io.BytesIO((Path(scratch) / "shot.png").read_bytes())), OUT / f"{name}.webp")
        browser.close()
        server.should_exit = True
        thread.join()


def save(image: Image.Image, out: Path) -> None:
    image = image.convert("RGB")
    if image.width > 760:
        image = image.resize((760, round(image.height * 760 / image.width)), Image.Resampling.LANCZOS)
    for quality in range(80, 10, -10):
        image.save(out, "WEBP", quality=quality, method=6)
        if out.stat().st_size < MAX_BYTES:
            return


if __name__ == "__main__":
    main()
