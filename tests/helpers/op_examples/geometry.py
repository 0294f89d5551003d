"""Examples of the ops that cut, scale, mirror and pad."""

from fastfeed.ops.crops import CenterCrop, Crop, Pad, RandomCrop
from fastfeed.ops.geometry import RandomFlip, RandomResize, RandomResizedCrop, Resize
from fastfeed.ops.object_crops import IoUCrop, ZoomOut

EXAMPLES = {
    Resize: [
        Resize(24),
        Resize((30, 17), filter="lanczos"),
        Resize(90),
        Resize([9, 8]),
        Resize(33, fit="long"),
        Resize((40, 30), fit="pad", fill=(10, 200, 30)),
        Resize(21, "box", "pad"),
        Resize((30, 40), fit="pad_floor"),
        Resize((13, 11), ["bilinear", "lanczos", "nearest"]),
        Resize((23, 15), "linear", "crop"),
        Resize((40, 36), fit="corner", fill=(10, 200, 30)),
        Resize((30, 20), fit="cover"),
    ],
    CenterCrop: [
        CenterCrop(24),
        CenterCrop((24, 20)),
        CenterCrop([9, 8]),
        CenterCrop((60, 21), fill=(3, 200, 9), pad_if_needed=True),
        CenterCrop((60, 20), mode="reflect", pad_if_needed="corner"),
    ],
    Crop: [Crop(3, 4, 10), Crop(0, 1, [9, 24])],
    RandomCrop: [
        RandomCrop(24),
        RandomCrop((28, 24), padding=4, fill=(255, 0, 9)),
        RandomCrop([12, 60], padding=[3, 70], mode="reflect"),
        RandomCrop(25, (0, 1, 2, 3), "edge"),
        RandomCrop([12, 60], padding=[3, 70], mode="symmetric"),
        RandomCrop((60, 20), mode="reflect", pad_if_needed=True),
        RandomCrop((60, 20), fill=(3, 200, 9), pad_if_needed="corner"),
    ],
    Pad: [
        Pad(3),
        Pad([2, 5], "reflect"),
        Pad((0, 30, 1, 2), fill=(1, 2, 3)),
        Pad(0, "edge"),
        Pad(9, "symmetric"),
    ],
    RandomResizedCrop: [
        RandomResizedCrop(24),
        RandomResizedCrop((9, 8), scale=[0.5, 0.9], ratio=[1, 2], filter="box"),
        RandomResizedCrop(10, filter=("bilinear", "bicubic")),
    ],
    IoUCrop: [IoUCrop(), IoUCrop([0.2, 0.4], scale=[0.2, 0.8], ratio=(0.6, 1.5))],
    ZoomOut: [ZoomOut(), ZoomOut(1.0, [1, 2], fill=(3, 2, 200))],
    RandomResize: [
        RandomResize((9, 40)),
        RandomResize([30, 30], longest=35, filter="box"),
        RandomResize([40, 30], scale=[0.1, 2.0]),
    ],
    RandomFlip: [RandomFlip(), RandomFlip(1.0, "both"), RandomFlip(0.3, "both")],
}
