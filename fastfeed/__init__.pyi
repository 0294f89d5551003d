"""The public names: one line each, and all ops, read by type checkers and, on import, by `__init__.py`."""

from . import errors as errors
from . import recipes as recipes
from . import scaling as scaling
from .adapters.prefetch_to_device import prefetch_to_device as prefetch_to_device
from .backends.options import GpuDecode as GpuDecode
from .distributed.launch import pin_gpu as pin_gpu
from .distributed.world import World as World
from .faults import Failure as Failure
from .faults import FaultPolicy as FaultPolicy
from .feed import Feed as Feed
from .feed.stats import FeedStats as FeedStats
from .ops import *
from .runtime.batch import Batch as Batch
from .runtime.batch import Boxes as Boxes
from .sampling import Balanced as Balanced
from .sampling import Blocks as Blocks
from .sampling import Repeated as Repeated
from .sampling import Weighted as Weighted
from .sampling.checkpoint import load_state as load_state
from .sampling.checkpoint import save_state as save_state
from .sampling.plan import Plan as Plan
from .sources import Arrays as Arrays
from .sources import ImageFolder as ImageFolder
from .sources import MDSShards as MDSShards
from .sources import Mixture as Mixture
from .sources import Objects as Objects
from .sources import RawShards as RawShards
from .sources import Table as Table
from .sources import TarShards as TarShards
from .sources import TFRecords as TFRecords
from .spec import Spec as Spec
from .storage.disk_cache import Cache as Cache
from .storage.storage import Storage as Storage
from .version import __version__ as __version__
