"""Examples of the ops on labels, and of those that put samples together."""

from fastfeed.ops.labels import LabelSmoothing, OneHot
from fastfeed.ops.mix import CutMix, MixUp, Mosaic, RandomChoice

EXAMPLES = {
    OneHot: [OneHot(), OneHot(10)],
    LabelSmoothing: [LabelSmoothing(), LabelSmoothing(0.2, classes=7), LabelSmoothing(0)],
    MixUp: [MixUp(), MixUp(1.0, p=0.5), MixUp(8), MixUp(per="batch", off_epoch=2)],
    CutMix: [CutMix(), CutMix(0.3, p=0.5), CutMix(per="batch", off_epoch=1)],
    Mosaic: [Mosaic(), Mosaic(0.5, center=[0.0, 1.0]), Mosaic(per="batch", off_epoch=1)],
    RandomChoice: [
        RandomChoice([MixUp(0.8), CutMix()]),
        RandomChoice([Mosaic(), MixUp(), CutMix()], weights=[1, 2, 0.5]),
        RandomChoice([RandomChoice([MixUp()]), Mosaic(0.5)]),
        RandomChoice([MixUp(), CutMix()], per="batch", off_epoch=3),
    ],
}
