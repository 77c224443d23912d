"""From a file to clients' arrays: tasks, tables, the encoder, data sets, partitions."""

from mfairfl.data.catalog import DATASETS, Dataset, describe, list_datasets, load_dataset, verify
from mfairfl.data.encoder import Encoder, EncoderConfig, Inputs
from mfairfl.data.federation import (
    SPLITS,
    Client,
    Federation,
    Shard,
    Split,
    federation_from_tables,
)
from mfairfl.data.files import FileFormat, read_frame
from mfairfl.data.partition import SCHEMES, partition
from mfairfl.data.sums import EncoderStatistics, statistics
from mfairfl.data.table import (
    Table,
    cells_of,
    features_frame,
    read_table,
    table_from_frame,
    task_from_roles,
)
from mfairfl.data.task import Attribute, Bin, Sensitive, Task
from mfairfl.data.values import MISSING, ColumnRules, Reading, canonical_text

__all__ = [
    "DATASETS",
    "MISSING",
    "SCHEMES",
    "SPLITS",
    "Attribute",
    "Bin",
    "Client",
    "ColumnRules",
    "Dataset",
    "Encoder",
    "EncoderConfig",
    "EncoderStatistics",
    "Federation",
    "FileFormat",
    "Inputs",
    "Reading",
    "Sensitive",
    "Shard",
    "Split",
    "Table",
    "Task",
    "canonical_text",
    "cells_of",
    "describe",
    "features_frame",
    "federation_from_tables",
    "list_datasets",
    "load_dataset",
    "partition",
    "read_frame",
    "read_table",
    "statistics",
    "table_from_frame",
    "task_from_roles",
    "verify",
]
