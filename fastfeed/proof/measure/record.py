"""Measurements of a session as plain numbers, without conclusions; written to a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from fastfeed.distributed.cores import cores_for
from fastfeed.errors import ProofError
from fastfeed.proof.measure.block_sizes import BlockSizes
from fastfeed.version import __version__

if TYPE_CHECKING:
    from fastfeed.feed.session import FeedSession

_FORMAT = 2


@dataclass(frozen=True, slots=True)
class Block:
    """The counted steps of one block."""

    mode: str
    round: int
    steps: int
    ns: int  # from the first counted request to the one after the last
    cpu_ns: int  # CPU time of the trainer's process meanwhile
    # of `ns`, what the feed itself counted as waiting for a batch; 0 where nothing came from it
    wait_ns: int
    stage_ns: dict[str, int]  # thread time by stage, of real batches


@dataclass(slots=True)
class ProofRecord:
    """All that is known of a proof."""

    feed: dict[str, Any]  # name, source, batch, steps, threads, prefetch, side_process, rank, world
    seconds: float  # that it may take
    modes: list[str] = field(default_factory=list)
    sizes: BlockSizes | None = None
    blocks: list[Block] = field(default_factory=list)  # of whole rounds
    rounds: int = 0  # that are whole
    steps: int = 0  # that the trainer made
    complete: bool = False
    left: bool = False  # the trainer has left its last iteration, so `steps` is how many it made
    no_cold: str = ""  # why files could not be made cold
    cold_verified: bool = False
    cores: int = 0  # that the feed's threads may use
    gpu: bool = False  # the trainer uses one
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, feed: FeedSession, seconds: float) -> ProofRecord:
        """Create the record of a proof that begins."""
        plan = feed.plan
        source = feed.source
        about = {
            "name": feed.timeline.helper_arguments["name"],
            "source": type(source).__name__,
            "samples": plan.length,
            "batch": round(plan.own_length / plan.steps) if plan.counts else plan.batch,
            "steps": plan.steps,
            "threads": feed.threads,
            "prefetch": feed.prefetch,
            "side_process": feed.config.side_process,
            "rank": plan.world.rank,
            "world": plan.world.size,
        }
        return cls(about, seconds, cores=cores_for(plan.world))

    def as_dict(self) -> dict[str, Any]:
        """Values that fit into JSON."""
        return {"fastfeed_prove_record": _FORMAT, "version": __version__, **asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ProofRecord:
        """Build a record from the values of `as_dict`."""
        if values.get("fastfeed_prove_record") != _FORMAT:
            raise ProofError(
                "the record of the proof is of another version of fastfeed; use the same in both"
                " places"
            )
        known = {one.name: values[one.name] for one in fields(cls)}
        sizes = known["sizes"]
        known["sizes"] = None if sizes is None else BlockSizes(**sizes)
        known["blocks"] = [Block(**block) for block in known["blocks"]]
        return cls(**known)
