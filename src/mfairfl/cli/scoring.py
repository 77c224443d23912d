"""Carry out `mfairfl predict`: score a file, write it whole, measure it where labels are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from mfairfl.cli.show import number_rows, print_json, print_table, say
from mfairfl.data import Task, canonical_text, features_frame, read_frame, table_from_frame
from mfairfl.data.text import MISSING
from mfairfl.engine.checkpoint import write_atomically
from mfairfl.errors import DataError
from mfairfl.experiments.predictor import Predictor, load
from mfairfl.experiments.record import numbers_of
from mfairfl.fairness import Tally, constant_classifier, summarise
from mfairfl.fairness.cells import Cells

__all__ = ["score_file"]
