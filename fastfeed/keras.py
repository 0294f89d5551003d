"""Functions of Keras that make data sets of images, with a feed behind them.

train, val = fastfeed.keras.image_dataset_from_directory(
    "photos", validation_split=0.2, subset="both", seed=0
)
model.fit(train, validation_data=val)
"""

from fastfeed.adapters.keras.dataframe import flow_from_dataframe
from fastfeed.adapters.keras.directory import image_dataset_from_directory

__all__ = ["flow_from_dataframe", "image_dataset_from_directory"]
