"""Sources of samples: one class per module, behind the protocols of `base`."""

from fastfeed.sources.arrays import Arrays
from fastfeed.sources.base import Source
from fastfeed.sources.files import Files
from fastfeed.sources.folder import ImageFolder
from fastfeed.sources.hugging_face.source import HuggingFace
from fastfeed.sources.mapped import Mapped
from fastfeed.sources.mds.source import MDSShards
from fastfeed.sources.mixture import Mixture
from fastfeed.sources.objects import Objects
from fastfeed.sources.raw import RawShards
from fastfeed.sources.table import Table
from fastfeed.sources.tar.source import TarShards
from fastfeed.sources.tfrecord.source import TFRecords
from fastfeed.sources.together import Together
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.storage import Storage

__all__ = [
    "Arrays",
    "Cache",
    "Files",
    "HuggingFace",
    "ImageFolder",
    "MDSShards",
    "Mapped",
    "Mixture",
    "Objects",
    "RawShards",
    "Source",
    "Storage",
    "TFRecords",
    "Table",
    "TarShards",
    "Together",
]
