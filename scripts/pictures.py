"""Makes the pictures of README and docs, in docs/pictures. `scripts/docs --pictures` runs it."""

import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.browser.chromium import chromium
from tests.browser.pictures import FOLDER, PICTURES, WORDS

with chromium() as browser:
    for name, make in PICTURES.items():
        picture = make(browser)
        info = PngInfo()
        info.add_itxt(WORDS, picture.words)
        # 256 colours need a third of the bytes
        image = Image.open(BytesIO(picture.png)).convert("RGB").quantize(method=Image.Quantize.MAXCOVERAGE)
        image.save(FOLDER / f"{name}.png", optimize=True, pnginfo=info)
        print(FOLDER / f"{name}.png")
