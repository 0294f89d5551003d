"""Examples of policies, for the laws of every op; and what AugMix means, written down plainly."""

from __future__ import annotations

from fastfeed.ops.policy import AutoAugment, RandAugment, TrivialAugmentWide

EXAMPLES = {
    RandAugment: [RandAugment(), RandAugment(3, 14, 20, "bilinear", [120, 110, 100])],
    TrivialAugmentWide: [TrivialAugmentWide(), TrivialAugmentWide(11, "bilinear", (9, 8, 7))],
    AutoAugment: [AutoAugment(), AutoAugment("cifar10", "bilinear"), AutoAugment("svhn", fill=(128, 128, 128))],
}
MEANING = {}
