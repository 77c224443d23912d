"""Fair federated learning for tabular data: train across silos, fairly, and measure it.

>>> import mfairfl
>>> table = mfairfl.load_dataset("adult")
>>> len(table)
48842
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mfairfl import data, fairness, geometry, models, references, strategies, testing, training
    from mfairfl.checks import doctor
    from mfairfl.data import load_dataset, partition
    from mfairfl.estimator.classifier import FairFederatedClassifier
    from mfairfl.experiments.choosing import choose
    from mfairfl.experiments.search.optuna_study import tune
    from mfairfl.experiments.study_run import compare
    from mfairfl.report.audited_rows import audit
    from mfairfl.runs.execute import Run
    from mfairfl.runs.extensions import register
    from mfairfl.runs.predictor import load
    from mfairfl.runs.train import train

__all__ = [
    "FairFederatedClassifier",
    "Run",
    "__version__",
    "audit",
    "choose",
    "compare",
    "data",
    "doctor",
    "fairness",
    "geometry",
    "load",
    "load_dataset",
    "models",
    "partition",
    "references",
    "register",
    "strategies",
    "testing",
    "train",
    "training",
    "tune",
]

__version__ = "0.9.0"

# Names are imported when first used, so that `mfairfl --help` need not wait for PyTorch.
_HOME = {
    "FairFederatedClassifier": "mfairfl.estimator.classifier",
    "Run": "mfairfl.runs.execute",
    "audit": "mfairfl.report.audited_rows",
    "choose": "mfairfl.experiments.choosing",
    "compare": "mfairfl.experiments.study_run",
    "doctor": "mfairfl.checks",
    "load": "mfairfl.runs.predictor",
    "load_dataset": "mfairfl.data",
    "partition": "mfairfl.data",
    "register": "mfairfl.runs.extensions",
    "train": "mfairfl.runs.train",
    "tune": "mfairfl.experiments.search.optuna_study",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in __all__:
        return import_module(f"mfairfl.{name}")
    raise AttributeError(f"module 'mfairfl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
