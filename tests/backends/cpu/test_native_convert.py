"""The native extension's conversion to numbers: large images go past the caches if they lie at a
multiple of 64 bytes.
"""

import numpy as np
import pytest

from fastfeed.runtime.extension import extension, is_built

pytestmark = pytest.mark.skipif(not is_built(), reason="the native extension is not built")


@pytest.mark.parametrize("offset", [0, 4, 32])
@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_large_images(dtype, channels, planar, offset):
    rng = np.random.default_rng(offset)
    table = rng.random((256, channels)).astype(dtype)
    for height, width in ((224, 224), (223, 301), (512, 128)):
        image = rng.integers(0, 256, (height, width, channels), np.uint8)
        memory = np.full(image.size * table.itemsize + 256, 7, np.uint8)
        first = -memory.ctypes.data % 64 + 64 + offset
        out = memory[first : first + image.size * table.itemsize].view(dtype)
        shape = (channels, height, width) if planar else (height, width, channels)
        extension().testing.convert(image, table, out.reshape(shape), planar)
        wanted = table[image, np.arange(channels)]
        assert np.array_equal(out.reshape(shape), wanted.transpose(2, 0, 1) if planar else wanted)
        assert (memory[:first] == 7).all() and (memory[first + out.nbytes :] == 7).all()
