"""Fair federated learning for tabular data: train across silos, fairly, and measure it.

>>> import mfairfl
>>> table = mfairfl.load_dataset("adult")
>>> len(table)
48842
"""

from mfairfl.data import load_dataset, partition
from mfairfl.experiments.execute import Run
from mfairfl.experiments.predictor import load
from mfairfl.experiments.train import train

__all__ = ["Run", "__version__", "load", "load_dataset", "partition", "train"]

__version__ = "0.1.0"
