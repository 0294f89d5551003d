"""Where samples come from: one class per module, behind the protocols of `base`; describe prints
them.

folder           ImageFolder: one folder per class
table            Table: images that CSV, JSON lines or Parquet name or hold; tables/ reads them
tar, tfrecord, mds, raw    shards, by format; shards/ has what they share
arrays           Arrays: images in memory; mnist_cifar reads the small data sets' files
mixture          Mixture: several sources in given shares
objects          Objects: adds boxes and masks to any source; annotations/ packs them
detect           which kind of source a path is
listing/         lists local and remote folders
"""

from fastfeed.sources.arrays import Arrays
from fastfeed.sources.base import Source
from fastfeed.sources.folder import ImageFolder
from fastfeed.sources.mds import MDSShards
from fastfeed.sources.mixture import Mixture
from fastfeed.sources.objects import Objects
from fastfeed.sources.raw import RawShards
from fastfeed.sources.table import Table
from fastfeed.sources.tar import TarShards
from fastfeed.sources.tfrecord import TFRecords
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.storage import Storage

__all__ = [
    "Arrays",
    "Cache",
    "ImageFolder",
    "MDSShards",
    "Mixture",
    "Objects",
    "RawShards",
    "Source",
    "Storage",
    "TFRecords",
    "Table",
    "TarShards",
]
