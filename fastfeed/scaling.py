"""Global batch, learning rate and warm-up for many ranks, each with its source.

    plan = fastfeed.scaling.plan_batch(base_batch=256, base_lr=0.1)  # in a job of 8 ranks
    print(plan)  # batch 2048 = 8 x 256, lr 0.8, and why
    feed = fastfeed.Feed(source, ops, global_batch=plan.global_batch)

- torch: `LambdaLR(SGD(model.parameters(), lr=plan.lr), plan.factor(len(feed)))`, one `step()` per
  batch
- optax: `optax.linear_schedule(plan.lr_at(0, len(feed)), plan.lr, plan.warmup_steps(len(feed)))`
- Keras: `LearningRateScheduler(plan.at_epoch)`, which changes it once per epoch
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fastfeed.arguments import check_count, checked
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError

if TYPE_CHECKING:
    from fastfeed.feed.feed import Feed
    from fastfeed.sampling.plan import Plan

__all__ = ["LINEAR_LIMIT", "RULES", "BatchPlan", "Rule", "plan_batch"]

Rule = Literal["linear", "sqrt", "power-2/3", "fixed-global"]

# global batch; Goyal et al. 2017, figure 1: error grows above 8k (ResNet-50 on ImageNet, SGD)
LINEAR_LIMIT = 8192

# rule -> (power of k in the learning rate, whose rule it is)
RULES: dict[str, tuple[float, str]] = {
    "linear": (
        1.0,
        (
            "Goyal et al. 2017 (arXiv 1706.02677), section 2.1, and Krizhevsky 2014 (arXiv"
            " 1404.5997): k times the samples per step, k times the step"
        ),
    ),
    "sqrt": (
        1 / 2,
        (
            "Krizhevsky 2014 (arXiv 1404.5997) and Hoffer et al. 2017 (arXiv 1705.08741): "
            "keeps the variance of a step as it was"
        ),
    ),
    "power-2/3": (2 / 3, "between linear and sqrt; an empirical choice, without a derivation"),
    "fixed-global": (
        0.0,
        "the recipe's own global batch, so its learning rate holds and no warm-up is needed",
    ),
}


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Batch size and learning rate; `print(plan)` explains them and names the source.

    Made by `plan_batch`.

    Args:
        local_batch (int): Samples per rank per step.
        global_batch (int): Samples per step over all ranks; for `Feed(global_batch=...)`.
        lr (float): Learning rate after warm-up.
        base_batch (int): Global batch of the recipe.
        base_lr (float): Learning rate of the recipe; warm-up begins here.
        rule (str): "linear", "sqrt", "power-2/3" or "fixed-global".
        warmup_epochs (float): Length of the warm-up, epochs. Default: 0.0.

    Example:
        >>> plan = ff.scaling.plan_batch(base_batch=256, base_lr=0.1, world=8)
        >>> plan.global_batch, plan.lr, plan.warmup_steps(steps_per_epoch=100)
        (2048, 0.8, 500)
        >>> plan.lr_at(0, steps_per_epoch=100), plan.at_epoch(5), plan.factor(steps_per_epoch=100)(500)
        (0.1, 0.8, 1.0)
        >>> plan.check(ff.Plan(samples=10_000, global_batch=2048))
    """

    local_batch: int
    global_batch: int
    lr: float
    base_batch: int
    base_lr: float
    rule: Rule
    warmup_epochs: float = 0.0

    @property
    def size(self) -> int:
        """Number of ranks that share the global batch."""
        return self.global_batch // self.local_batch

    @property
    def why(self) -> str:
        """The source of this rule, and where it is known to fail."""
        text = f"{self.rule}: {RULES[self.rule][1]}"
        if self.warmup_epochs:
            text += "\nwarm-up: Goyal et al. 2017, section 2.2"
        if self.rule == "linear" and self.lr > self.base_lr and self.global_batch > LINEAR_LIMIT:
            text += (
                f"\nbeware: {self.global_batch} is above {LINEAR_LIMIT}, where Goyal et al. saw the"
                ' linear rule fail on ImageNet; compare accuracy, or use rule="sqrt"'
            )
        return text

    def warmup_steps(self, steps_per_epoch: int) -> int:
        """Steps until `lr` is reached.

        Args:
            steps_per_epoch (int): `len(feed)`, at least 1.

        Returns:
            Steps; 0 means no warm-up.
        """
        check_count("steps_per_epoch", steps_per_epoch, 1, None, "pass len(feed)")
        return round(self.warmup_epochs * steps_per_epoch)

    def lr_at(self, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step: equal increments from `base_lr` to `lr`.

        Goyal et al. 2017 (arXiv 1706.02677), section 2.2, gradual warm-up.

        Args:
            step (int): Counted from 0 over all epochs.
            steps_per_epoch (int): `len(feed)`, at least 1.

        Returns:
            The learning rate.
        """
        check_count("step", step, 0, None, "count steps from 0 over all epochs")
        return self._ramp(step, self.warmup_steps(steps_per_epoch))

    def factor(self, steps_per_epoch: int) -> Callable[[int], float]:
        """The warm-up as a function, for torch's `LambdaLR`; multiply it with a decay of your own.

        Args:
            steps_per_epoch (int): `len(feed)`, at least 1.

        Returns:
            A function from a step, counted from 0 over all epochs, to the share of `lr`.
        """
        self.warmup_steps(steps_per_epoch)  # checks
        return lambda step: self.lr_at(step, steps_per_epoch) / self.lr

    def at_epoch(self, epoch: int, lr: float | None = None) -> float:
        """Learning rate at the beginning of an epoch, for Keras's `LearningRateScheduler`.

        Args:
            epoch (int): Counted from 0.
            lr (float | None): Ignored; Keras passes it. Default: None.

        Returns:
            The learning rate.
        """
        check_count("epoch", epoch, 0, None, "count epochs from 0")
        return self._ramp(epoch, self.warmup_epochs)

    def check(self, feed: Feed | Plan) -> None:
        """Refuse a feed with another global batch than this learning rate was planned for.

        Args:
            feed (Feed | Plan): The feed, or its plan.

        Raises:
            ConfigError: If its global batch differs.
        """
        got = getattr(feed, "plan", feed).global_batch  # pyright: ignore[reportAttributeAccessIssue]
        if got != self.global_batch:
            raise ConfigError(
                f"the feed's global batch must be {self.global_batch}, planned for lr={self.lr:g},"
                f" got {got}; pass global_batch={self.global_batch} to Feed (batch counts per"
                f" rank), or plan again for {got}",
                field="global_batch",
            )

    def __str__(self) -> str:
        ranks = f"{self.size} rank{'s' if self.size > 1 else ''}"
        before = f"recipe: {self.base_batch} and {self.base_lr:g}"
        text = (
            f"global batch {self.global_batch} = {ranks} x {self.local_batch}, learning rate"
            f" {self.lr:g} ({before})"
        )
        if self.warmup_epochs:
            text += f", after {self.warmup_epochs:g} epochs of warm-up from {self.base_lr:g}"
        return f"{text}\n{self.why}"

    def _ramp(self, position: float, warmup: float) -> float:
        return (
            self.lr
            if position >= warmup
            else self.base_lr + (self.lr - self.base_lr) * (position / warmup)
        )


@checked
def plan_batch(
    base_batch: int,
    base_lr: float,
    world: World | int | None = None,
    rule: Rule = "linear",
    *,
    local_batch: int | None = None,
    warmup_epochs: float = 5,
) -> BatchPlan:
    """Scale a recipe to more ranks; the learning rate follows k = global batch / base batch.

    A rule is a start, not a promise: linear held up to a global batch of 8192 on ImageNet. A
    learning rate that does not rise needs no warm-up and gets none.

    Args:
        base_batch (int): Global batch of the recipe, at least 1.
        base_lr (float): Learning rate of the recipe, > 0.
        world (World | int | None): The ranks, or their number. Default: None, what the launcher's
            environment says.
        rule (str): "linear": lr * k (Goyal et al. 2017, arXiv 1706.02677; Krizhevsky 2014, arXiv
            1404.5997). "sqrt": lr * sqrt(k) (Krizhevsky 2014; Hoffer et al. 2017, arXiv
            1705.08741). "power-2/3": lr * k**(2/3), an empirical choice. "fixed-global": the global
            batch stays and is split over the ranks; so does lr. Default: "linear".
        local_batch (int | None): Samples per rank, at least 1. Default: None, `base_batch`, a
            recipe for one GPU.
        warmup_epochs (float): Length of the warm-up, epochs, >= 0. Default: 5.

    Returns:
        The plan.

    Raises:
        ConfigError: If a value is out of range, or the ranks do not divide the batch under
            "fixed-global".

    Example:
        >>> print(ff.scaling.plan_batch(base_batch=256, base_lr=0.1, world=8))
        global batch 2048 = 8 ranks x 256, learning rate 0.8 (recipe: 256 and 0.1), after 5 epochs
        of warm-up from 0.1
        linear: Goyal et al. 2017 (arXiv 1706.02677), section 2.1, and ...
        warm-up: Goyal et al. 2017, section 2.2
    """
    check_count("base_batch", base_batch, 1, None)
    if world is None:
        world = World.detect()
    size = world.size if isinstance(world, World) else world
    check_count("world", size, 1, None, "pass a World, or the number of processes in all")
    for name, value, bound in (
        ("base_lr", base_lr, "> 0"),
        ("warmup_epochs", warmup_epochs, ">= 0"),
    ):
        number = (
            isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        )
        if not number or value < 0 or (value == 0 and bound == "> 0"):
            raise ConfigError.of(name, f"a finite number {bound}", value)
    if rule not in RULES:
        raise ConfigError.of("rule", f"one of {', '.join(RULES)}", rule)
    if rule == "fixed-global":
        if local_batch is not None:
            raise ConfigError.of(
                "local_batch",
                'left out under rule="fixed-global"',
                local_batch,
                "it is base_batch / ranks",
            )
        if base_batch % size:
            below = base_batch // size * size
            nearest = " and ".join(str(batch) for batch in (below, below + size) if batch)
            raise ConfigError(
                f'base_batch must be a multiple of {size} (ranks) under rule="fixed-global", got'
                f" {base_batch}; nearest: {nearest}, each a separate recipe, or another number of"
                " ranks",
                field="base_batch",
            )
        return BatchPlan(
            base_batch // size, base_batch, float(base_lr), base_batch, float(base_lr), rule
        )
    if local_batch is None:
        local_batch = base_batch
    check_count("local_batch", local_batch, 1, None, "samples per rank")
    lr = base_lr * (local_batch * size / base_batch) ** RULES[rule][0]
    warmup = float(warmup_epochs) if lr > base_lr else 0.0
    return BatchPlan(local_batch, local_batch * size, lr, base_batch, float(base_lr), rule, warmup)
