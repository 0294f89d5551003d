"""OpenCV and NumPy as a good user writes them by hand: the obvious calls, in-place where that is
natural.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

RNG = np.random.default_rng(0)
RAMP = np.arange(256)
PLACES = np.meshgrid(np.arange(224, dtype=np.float32), np.arange(224, dtype=np.float32))
BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}
HALF, BACK = (np.array([[1, 0, by], [0, 1, by], [0, 0, 1]]) for by in (0.5, -0.5))


def brightness(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return cv2.convertScaleAbs(image, alpha=v["factor"])


def contrast(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    mean = round(cv2.mean(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))[0])
    return cv2.addWeighted(image, v["factor"], image, 0, mean * (1 - v["factor"]))


def saturation(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    gray = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    return cv2.addWeighted(image, v["factor"], gray, 1 - v["factor"], 0)


def hue(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
    hsv[:, :, 0] += np.uint8(round(v["shift"] * 255) % 256)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)


def jitter(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    for which in RNG.permutation(4):
        if which == 3:
            image = hue(image, op, {"shift": RNG.uniform(-op.hue, op.hue)})
        else:
            function, amount = (
                (brightness, op.brightness),
                (contrast, op.contrast),
                (saturation, op.saturation),
            )[which]
            image = function(image, op, {"factor": RNG.uniform(1 - amount, 1 + amount)})
    return image


def grayscale(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)


def channels(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    planes = list(cv2.split(image))
    empty = np.zeros_like(planes[0])
    return cv2.merge([planes[k] if k >= 0 else empty for k in v["channels"]])


def solarize_add(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    table = np.where(op.threshold > RAMP, np.minimum(RAMP + v["amount"], 255), RAMP)
    return cv2.LUT(image, table.astype(np.uint8))


def solarize(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return cv2.LUT(image, np.where(v["threshold"] > RAMP, RAMP, 255 - RAMP).astype(np.uint8))


def posterize(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return image & np.uint8(256 - (1 << (8 - v["bits"])))


def equalize(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return cv2.merge([cv2.equalizeHist(plane) for plane in cv2.split(image)])


def autocontrast(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    planes = []
    for plane in cv2.split(image):
        low, high, _, _ = cv2.minMaxLoc(plane)
        scale = 255 / (high - low) if high > low else 1
        planes.append(cv2.convertScaleAbs(plane, alpha=scale, beta=-low * scale))
    return cv2.merge(planes)


def invert(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return cv2.bitwise_not(image)


def gamma(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return cv2.LUT(image, (255 * (RAMP / 255) ** v["gamma"]).astype(np.uint8))


def lut(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return cv2.LUT(image, np.array(op.table, np.uint8))


def sharpness(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    smooth = cv2.filter2D(image, -1, np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13)
    return cv2.addWeighted(image, v["factor"], smooth, 1 - v["factor"], 0)


def blur(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return cv2.GaussianBlur(image, (op.taps, op.taps), v["sigma"])


def motion(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    """A line drawn into a kernel."""
    half = v["length"] // 2
    kernel = np.zeros((v["length"], v["length"]), np.float32)
    x, y = np.rint(half * v["direction"]).astype(int).tolist()
    cv2.line(kernel, (half - x, half - y), (half + x, half + y), 1.0)
    return cv2.filter2D(image, -1, kernel / kernel.sum())


def median(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return cv2.medianBlur(image, v["kernel"])


def noise(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    grain = np.empty(image.shape, np.int16)
    cv2.randn(grain, 0, v["sigma"])
    return cv2.add(image, grain, dtype=cv2.CV_8U)


def jpeg(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    quality = [cv2.IMWRITE_JPEG_QUALITY, int(v["quality"])]
    file = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), quality)[1]
    return cv2.cvtColor(cv2.imdecode(file, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def erase(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    top, left, height, width = v["box"]
    image = image.copy()
    if op.fill == "noise":
        image[top : top + height, left : left + width] = RNG.integers(
            0, 256, (height, width, 3), np.uint8
        )
    elif op.fill == "color":
        image[top : top + height, left : left + width] = v["color"]
    else:
        image[top : top + height, left : left + width] = op.fill
    return image


def grid(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    side = round(v["share"] * v["unit"])
    image = image.copy()
    for top in range(v["top"] - v["unit"], image.shape[0], v["unit"]):
        for left in range(v["left"] - v["unit"], image.shape[1], v["unit"]):
            image[max(top, 0) : max(top + side, 0), max(left, 0) : max(left + side, 0)] = op.fill
    return image


def warp(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    """Pixels' centers are at whole numbers here, and half of one there."""
    matrix = BACK @ v["matrix"] @ HALF
    size = v["size"][::-1].tolist() if "size" in v else image.shape[1::-1]
    how: dict[str, Any] = {
        "flags": cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        "borderMode": BORDERS[op.border],
        "borderValue": op.fill,
    }
    if np.array_equal(matrix[2], [0, 0, 1]):
        return cv2.warpAffine(image, matrix[:2], size, **how)
    return cv2.warpPerspective(image, matrix, size, **how)


def elastic(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    """Uniform noise, blurred, as float maps."""
    height, width = image.shape[:2]
    maps = []
    for axis in (0, 1):
        noise = np.empty((height, width), np.float32)
        cv2.randu(noise, -1, 1)
        blurred = cv2.GaussianBlur(noise, (41, 41), op.sigma)
        maps.append(blurred * (op.alpha / 2) + PLACES[axis])
    return cv2.remap(image, *maps, cv2.INTER_LINEAR, borderMode=BORDERS[op.border])


def grid_distortion(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    along = [
        np.interp(np.arange(n) + 0.5, np.linspace(0, n, op.steps + 1), lines) - 0.5
        for n, lines in zip(image.shape[1::-1], v["lines"], strict=True)
    ]
    maps = np.meshgrid(*(places.astype(np.float32) for places in along))
    return cv2.remap(image, *maps, cv2.INTER_LINEAR, borderMode=BORDERS[op.border])


def standardized(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    mean, spread = (float(x[0, 0]) for x in cv2.meanStdDev(image.reshape(-1, 1)))
    spread = max(spread, 255 / image.size**0.5)
    return image.astype(np.float32) * np.float32(1 / spread) - np.float32(mean / spread)


def flip(image: np.ndarray, op: Any, v: dict[str, Any]) -> np.ndarray:
    return cv2.flip(image, 1)


OPS = {
    "Brightness": brightness,
    "Contrast": contrast,
    "Saturation": saturation,
    "Hue": hue,
    "ColorJitter": jitter,
    "Grayscale": grayscale,
    "ChannelShuffle": channels,
    "ChannelDropout": channels,
    "SolarizeAdd": solarize_add,
    "MotionBlur": motion,
    "MedianBlur": median,
    "Solarize": solarize,
    "Posterize": posterize,
    "Equalize": equalize,
    "AutoContrast": autocontrast,
    "Invert": invert,
    "Gamma": gamma,
    "LUT": lut,
    "Sharpness": sharpness,
    "GaussianBlur": blur,
    "GaussianNoise": noise,
    "JPEGCompression": jpeg,
    "RandomErasing": erase,
    "CutOut": erase,
    "GridMask": grid,
    "Rotate": warp,
    "Affine": warp,
    "Perspective": warp,
    "ElasticTransform": elastic,
    "GridDistortion": grid_distortion,
    "Standardize": standardized,
    "RandomFlip": flip,
}
