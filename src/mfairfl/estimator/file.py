"""estimator.json: a saved estimator's parameters and classes, from an untrusted source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from mfairfl.data.values import StrictModel
from mfairfl.engine.output import Rule
from mfairfl.errors import RunDirectoryError, first_problem
from mfairfl.estimator.in_memory import label_texts
from mfairfl.files import write_atomically
from mfairfl.plugins import is_import_string
from mfairfl.runs.record import RunRecord, read_json, validated
from mfairfl.strategies.base import Weights
from mfairfl.strict_json import parse_json

FILE = "estimator.json"
_RESTORE = "the file was altered: restore it or fit again"

_DTYPE = r"<U\d{1,4}|bool|object|u?int(8|16|32|64)|float(16|32|64)"
Label = bool | int | float | str


class SavedClasses(StrictModel):
    """The two values of the label, ascending, with their type.

    Examples
    --------
    >>> SavedClasses.of(np.array(["no", "yes"])).array()
    array(['no', 'yes'], dtype='<U3')
    """

    dtype: Annotated[str, Field(pattern=f"^({_DTYPE})$")]
    values: tuple[Label, Label]

    @model_validator(mode="after")
    def _two(self) -> Self:
        try:
            array = self.array()
        except (OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"values that are not {self.dtype} ({error})") from None
        if array.tolist() != list(self.values) or self.values[0] == self.values[1]:
            raise ValueError(f"values that are not two of type {self.dtype}")
        return self

    @classmethod
    def of(cls, classes: NDArray[Any]) -> SavedClasses:
        """Take the classes of an estimator; objects must be text, numbers or booleans."""
        values = classes.tolist()
        for value in values:
            # A time in nanoseconds is a number to `tolist`.
            kind = classes.dtype if classes.dtype.kind in "mM" else type(value).__name__
            if kind not in ("bool", "int", "float", "str"):
                raise RunDirectoryError(
                    f"a class is a {kind} ({value!r}): use text, numbers or booleans as labels to "
                    "save the estimator"
                )
        try:
            return cls(dtype=_name(classes.dtype), values=tuple(values))
        except ValidationError as error:
            raise RunDirectoryError(f"classes: {first_problem(error, cls)}") from None

    def array(self) -> NDArray[Any]:
        """Return the classes as they were."""
        return np.array(self.values, dtype=self.dtype)


def _name(dtype: np.dtype[Any]) -> str:
    return dtype.str if dtype.kind == "U" else dtype.name


class SavedParameters(StrictModel):
    """The constructor's parameters, as far as they are data; `fit` checks what they say."""

    strategy: str
    notion: str | tuple[str, ...]
    rounds: int | None
    local_epochs: int
    hidden: tuple[int, ...]
    batch_size: int
    lr: float
    weight_decay: float
    tolerance: float | None
    blind: bool = False
    output_rule: Rule | None
    weights: Weights | None
    model: str | None
    favourable: Label | None
    config: dict[str, Any] | None
    random_state: int | None

    @model_validator(mode="before")
    @classmethod
    def _of_one_tolerance(cls, values: Any) -> Any:
        """Take the parameters of a version that had one slack for training, one for the rule."""
        if not (isinstance(values, dict) and "alpha" in values):
            return values
        slacks = {
            "fairness.dead_zone": values["alpha"],
            "output.tolerance": values.get("tolerance"),
        }
        config = {key: slack for key, slack in slacks.items() if slack is not None}
        kept = {key: value for key, value in values.items() if key != "alpha"}
        return kept | {"tolerance": None, "config": {**(values.get("config") or {}), **config}}

    @model_validator(mode="before")
    @classmethod
    def _of_group_thresholds(cls, values: Any) -> Any:
        """Take the parameters of a version whose thresholds were always those of groups."""
        if not (isinstance(values, dict) and values.get("output_rule") == "threshold"):
            return values
        config = {**(values.get("config") or {}), "by": "group", "randomise": True}
        return values | {"output_rule": "thresholds", "config": config}

    @classmethod
    def of(cls, parameters: Mapping[str, Any], record: RunRecord) -> SavedParameters:
        """Take an estimator's; in place of an object, what the run recorded of it.

        A model that is code is not saved: `FairFederatedClassifier.load` has to be given it.
        """
        values = dict(parameters)
        if not isinstance(values["strategy"], str):
            strategy = dict(record.config["strategy"])
            values |= {"strategy": strategy.pop("name"), "weights": strategy.pop("weights", None)}
            hyper_parameters = {f"strategy.{name}": value for name, value in strategy.items()}
            values["config"] = dict(values["config"] or {}) | hyper_parameters
        notion = values["notion"]
        names = notion if isinstance(notion, list | tuple) else [notion]
        if not all(isinstance(name, str) for name in names):
            values["notion"] = record.config["fairness"]["notion"]
        if not isinstance(values["model"], str):
            values["model"] = None
        if not isinstance(values["random_state"], int | np.integer | None):
            values["random_state"] = record.seed
        try:
            return cls.model_validate(parse_json(json.dumps(values, default=_number)))
        except ValidationError as error:
            raise RunDirectoryError(f"cannot be saved: {first_problem(error, cls)}") from None
        except (TypeError, ValueError) as error:
            raise RunDirectoryError(
                f"a parameter cannot be saved as JSON ({error}): use text and numbers"
            ) from None

    @property
    def code(self) -> list[str]:
        """The names that are code to be imported."""
        notions = (self.notion,) if isinstance(self.notion, str) else self.notion
        names = (self.strategy, *notions, self.model or "")
        return [name for name in names if is_import_string(name)]


def _number(value: Any) -> Any:
    """Return a NumPy number as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} is neither text nor a number")


class EstimatorFile(StrictModel):
    """What estimator.json holds."""

    schema_version: Literal[1] = 1
    run: str
    """Identity of the run beside it."""
    parameters: SavedParameters
    """The constructor's."""
    classes: SavedClasses
    favourable: Literal[0, 1]
    """Which of the classes."""
    columns: tuple[str, ...] = Field(min_length=1)
    """What the run calls the features, in the order of X."""
    feature_names: tuple[str, ...] | None = None
    """What X calls them, if it has names."""

    def write(self, folder: Path) -> None:
        """Write the file."""
        text = json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False)
        write_atomically(folder / FILE, text.encode() + b"\n")

    @classmethod
    def read(cls, folder: Path, record: RunRecord) -> EstimatorFile:
        """Read and check the file of a folder, whose run is known already."""
        path = folder / FILE
        plain = read_json(path, "give the folder of FairFederatedClassifier.save")
        file = validated(cls, plain, path, _RESTORE)
        if problem := file._contradiction(record):
            raise RunDirectoryError(f"{path}: {problem}; {_RESTORE}")
        return file

    def _contradiction(self, record: RunRecord) -> str:
        """Return where the file does not fit the run beside it."""
        task, texts = record.task, label_texts(self.classes.values)
        classes = [texts[self.favourable], texts[1 - self.favourable]]
        names = self.columns if self.feature_names is None else self.feature_names
        same_classes = classes == [task.favourable, task.unfavourable]
        hidden = {s.column for s in task.sensitive if not task.sensitive_as_features}
        same_columns = sorted({*self.columns} - hidden) == sorted(task.features)
        named = len(names) == len(self.columns)
        rules = (
            (self.run == record.identity, "belongs to another run than run.json"),
            (same_classes, "has other classes than the task in run.json"),
            (same_columns, "has other columns than the task in run.json"),
            (named, f"has {len(names)} names of {len(self.columns)} features"),
        )
        return next((problem for holds, problem in rules if not holds), "")
