"""A run's configuration: one TOML file or the same keys as flags, validated before anything runs.

Unknown keys are refused with the nearest known one; every error names the file and the key.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import pydantic
from pydantic import Field

from mfairfl import __version__
from mfairfl.data import EncoderConfig, FileFormat, Task
from mfairfl.data.values import DocumentedModel
from mfairfl.engine.output import Rule
from mfairfl.errors import ConfigError, MfairflError, first_problem, require_known
from mfairfl.fairness.constraints import Constraints, Goal
from mfairfl.fairness.fitting import By, Demand, Objective
from mfairfl.fairness.notions import follow_notion, notion
from mfairfl.plugins import MODELS
from mfairfl.runs.options import comma_list
from mfairfl.strategies import create
from mfairfl.strategies.base import Strategy
from mfairfl.strategies.registry import METHODS
from mfairfl.strict_json import fingerprint
from mfairfl.training.plan import Recipe

T = TypeVar("T")

_WIDEST = 0.03  # of dead zones that nobody stated: one small group must not excuse the others


def _one_or_several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], pydantic.BeforeValidator(_one_or_several), Field(min_length=1)]
"""One name, or several."""


def _data_option(value: Any) -> bool | int | tuple[str, ...]:
    if isinstance(value, bool | int):
        return value
    names = comma_list(value) if isinstance(value, str) else value
    if isinstance(names, list | tuple) and names and all(isinstance(n, str) for n in names):
        return tuple(names)
    raise ValueError("give true or false, a whole number, or names")


DataOption = Annotated[bool | int | tuple[str, ...], pydantic.PlainValidator(_data_option)]
"""The value of a data set's option; names are a list or one text with commas."""


def _followed(look_up: Callable[[str], T], name: str) -> T:
    """Find what a name means, or import it: a configuration is the user's own words."""
    try:
        return look_up(name)
    except ConfigError as error:
        raise ValueError(str(error)) from None  # pydantic then names the key


def _known(look_up: Callable[[str], object]) -> pydantic.AfterValidator:
    """Check that a name means something."""

    def check(name: str) -> str:
        _followed(look_up, name)
        return name

    return pydantic.AfterValidator(check)


class DataConfig(DocumentedModel):
    """Where the rows come from: a data set of the catalogue, or a file with a `[task]`."""

    name: str | None = None
    """Data set of the catalogue."""
    csv: str | None = None
    """Path of the rows, relative to this file."""
    delimiter: str | None = Field(default=None, examples=[","])
    """Detected if omitted."""
    encoding: str | None = Field(default=None, examples=["utf-8"])
    """UTF-8 if omitted, unless the file marks another."""
    header: bool | None = Field(default=None, examples=[False])
    """False: the first line is data; columns are called column-1, column-2, ..."""
    sheet: str | None = Field(default=None, examples=["people"])
    """Which sheet of an Excel file with several."""
    path: str | None = None
    """Where the catalogue's data set is on this machine, if it is not to be fetched."""
    sensitive: Names | None = None
    """Which of the task's sensitive attributes are kept; all if omitted."""
    options: dict[str, DataOption] = Field(default_factory=dict)
    """Options of the catalogue's data set."""

    @pydantic.model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.name is not None and self.csv is not None:
            raise ValueError("give either data.name or data.csv, not both")
        return self

    @property
    def format(self) -> FileFormat:
        """How the file is read."""
        return FileFormat(self.delimiter, self.encoding, self.header, self.sheet)


class ClientsConfig(DocumentedModel):
    """How rows are split among clients, and into train, validation and test shards."""

    scheme: str | None = None
    """How rows are split: iid, dirichlet, size-skew, ratio, column, ..."""
    count: int | None = Field(default=None, ge=1)
    """Number of clients."""
    test: float = Field(default=0.2, ge=0, lt=1)
    """Share of each client's rows held out for measuring."""
    validation: float = Field(default=0.0, ge=0, lt=1)
    """Share that selects the served model; 0: train rows do."""
    folds: int | None = Field(default=None, ge=2)
    """Number of folds of the train rows, for cross-validation."""
    fold: int = Field(default=0, ge=0)
    """Which fold measures, from 0."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the scheme: concentration and on of dirichlet, skew of size-skew, ..."""

    @pydantic.model_validator(mode="after")
    def _fold_exists(self) -> Self:
        if self.fold >= (self.folds or 1):
            raise ValueError(f"fold {self.fold} needs clients.folds above it (got {self.folds})")
        return self


class ModelConfig(DocumentedModel):
    """The model: `mlp` with its hidden layers, `logistic`, or one of your own by name."""

    kind: Annotated[str, _known(MODELS.follow)] = "mlp"
    """mlp or logistic."""
    # The arithmetic of a layer with one unit would depend on what is computed beside it.
    hidden: tuple[Annotated[int, Field(ge=2)], ...] = (64, 64)
    """Widths of the hidden layers."""

    @property
    def widths(self) -> tuple[int, ...]:
        """The hidden layers of a built-in model; logistic regression has none."""
        return () if self.kind == "logistic" else self.hidden


class TrainingConfig(DocumentedModel):
    """The budget and the recipe that every method shares."""

    rounds: int = Field(default=40, ge=0)
    """Communication rounds; unless they are stated, a literal preset takes its own steps."""
    local_epochs: int = Field(default=2, ge=1)
    """Local epochs per round."""
    batch_size: int = Field(default=512, ge=1)
    """Mini-batch size."""
    optimizer: Literal["adamw", "sgd", "gradient"] = "adamw"
    """adamw, sgd or gradient."""
    lr: float = Field(default=4e-3, gt=0)
    """Learning rate in the first round."""
    lr_final: float = Field(default=5e-5, ge=0)
    """Learning rate in the last round."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """cosine or constant."""
    weight_decay: float = Field(default=1.5, ge=0)
    """Decoupled, multiplied by the learning rate."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """For sgd."""
    participation: float = Field(default=1.0, gt=0, le=1)
    """Share of clients sampled each round."""
    patience: int | None = Field(default=None, ge=1, examples=[10])
    """Stop after this many rounds without a lower loss."""
    evaluate_every: int = Field(default=10, ge=1)
    """All clients are measured, on test rows too, every so many rounds and after the last."""

    def recipe(self) -> Recipe:
        """Return the part that goes into plans."""
        budget = {"rounds", "participation", "patience", "evaluate_every"}
        return Recipe(**self.model_dump(exclude=budget))


class FairnessConfig(DocumentedModel):
    """What should be fair: notions, sensitive attributes (default: all of the task), tolerance."""

    notion: Names = ("demographic_parity",)
    """demographic_parity, equalized_odds, accuracy_parity, ..."""
    sensitive: Names | None = Field(default=None, examples=[["sex"]])
    """Attributes to constrain; all of the task if omitted."""
    intersections: bool = False
    """Also constrain intersections of attributes."""
    blind: bool = False
    """Sensitive columns are measured only: neither the model nor the output rule sees them."""
    tolerance: float | None = Field(default=None, ge=0, le=1, examples=[0.05])
    """Largest acceptable violation, for training, output rule and verdict."""
    dead_zone: float | None = Field(default=None, ge=0, le=1, examples=[0.02])
    """Violation that training leaves uncorrected, if tolerance or rows are not to decide it."""
    verdict_tolerance: float | None = Field(default=None, ge=0, le=1, examples=[0.05])
    """Largest violation that the report accepts, if not the tolerance."""

    @pydantic.field_validator("notion")
    @classmethod
    def _long_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_followed(follow_notion, name).name for name in value)


StrategyName = Annotated[str, _known(METHODS.follow)]
"""A strategy's name, or an import string of the user's own."""


class StrategyConfig(DocumentedModel):
    """The method and its hyper-parameters."""

    model_config = pydantic.ConfigDict(extra="allow")

    name: StrategyName = "mfairfl"
    """See `mfairfl strategies`; its hyper-parameters go here."""

    def create(self) -> Strategy:
        """Return the strategy, its hyper-parameters checked."""
        return create(self.name, **(self.model_extra or {}))


_Share = Annotated[float, Field(ge=0, le=1)]
_Cost = Annotated[float, Field(gt=0)]


def _local(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and value != "none" and not (number and 0 <= value <= 1):
        raise ValueError("give a number from 0 to 1, or none")
    return value


_Local = Annotated[float | Literal["none"], pydantic.BeforeValidator(_local)]


class OutputConfig(DocumentedModel):
    """Which weights are served; by default `select` for constrained methods, else `last`."""

    rule: Rule | None = Field(default=None, examples=["select"])
    """last, average, select, mixture or thresholds."""
    tolerance: float | None = Field(default=None, ge=0, le=1, examples=[0.005])
    """Largest violation that the rule allows, if `fairness.tolerance` is not to decide it."""
    by: By | None = Field(default=None, examples=["group"])
    """Whose thresholds may differ: none, group, client or both."""
    local_tolerance: _Local | None = Field(default=None, examples=[0.05])
    """Largest violation at each client, or "none"; needed where thresholds differ by client."""
    randomise: bool = False
    """Whether some people may be decided by chance."""
    maximise: Objective = "accuracy"
    """accuracy, balanced_accuracy or worst_client_accuracy."""
    costs: tuple[_Cost, _Cost] = (1.0, 1.0)
    """What a wrong favourable and a wrong unfavourable decision cost."""
    least_client_accuracy: _Share | None = Field(default=None, examples=[0.7])
    """Every client's least accuracy."""
    least_selection_rate: _Share | None = Field(default=None, examples=[0.1])
    """Every group's least selection rate."""
    least_true_positive_rate: _Share | None = Field(default=None, examples=[0.6])
    """Every group's least true positive rate."""
    relax: bool = False
    """Enlarge bounds that cannot be met together as little as possible."""
    shrinkage: float = Field(default=Demand().shrinkage, ge=0)
    """How far clients' thresholds are drawn towards everyone's."""

    @pydantic.field_validator("rule", mode="before")
    @classmethod
    def _renamed(cls, value: Any) -> Any:
        if value == "threshold":
            raise ValueError(
                "'threshold' is 'thresholds' with by = \"group\" (--output-rule thresholds --by "
                "group), and randomise = true where decisions may be drawn"
            )
        return value

    def of_thresholds(self) -> dict[str, Any]:
        """Return the keys that only the rule `thresholds` follows, as far as they are set."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        unset = {name: f.default for name, f in type(self).model_fields.items()}
        return {
            name: value
            for name, value in given.items()
            if name not in ("rule", "tolerance") and value != unset[name]
        }


class Allowed(NamedTuple):
    """The violation that training and the output rule allow.

    Attributes
    ----------
    margin : float
        How far below the tolerance both stay; 0 without one.
    dead_zone : float
        What training leaves uncorrected.
    output : float
        What the output rule allows on the rows that choose.
    """

    margin: float
    dead_zone: float
    output: float


class Config(DocumentedModel):
    """Everything that decides a run's result.

    Examples
    --------
    >>> config = make_config({"data": {"name": "adult"}, "strategy": {"name": "fedavg"}})
    >>> config.training.rounds, config.fairness.notion
    (40, ('demographic_parity',))
    """

    seed: int = Field(default=0, ge=0)
    """Equal seeds give equal splits and equal results."""
    robust: Literal["none", "auto", "clip", "nnm-gm", "multi-krum", "centred-clip"] = "none"
    """Against dishonest clients: auto, or a rule of the literature; none trusts all clients."""
    data: DataConfig = Field(default_factory=DataConfig)
    task: Task | None = None
    clients: ClientsConfig = Field(default_factory=ClientsConfig)
    encoder: EncoderConfig = Field(default_factory=EncoderConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    fairness: FairnessConfig = Field(default_factory=FairnessConfig)
    strategy: StrategyConfig = Field(default_factory=StrategyConfig)
    output: OutputConfig = Field(default_factory=OutputConfig)

    @pydantic.model_validator(mode="after")
    def _source(self) -> Self:
        if self.data.csv is not None and self.task is None:
            raise ValueError("data.csv needs a [task] with label, favourable and sensitive")
        if self.task is not None and not self.task.sensitive:
            raise ValueError("task.sensitive is empty: name the columns to be fair for")
        self.strategy.create()
        self.training.recipe()
        self._check_thresholds()
        return self

    def _check_thresholds(self) -> None:
        """Refuse what a rule of thresholds lacks or contradicts, and its keys for other rules."""
        keys, rule = self.output.of_thresholds(), self.output_rule()
        if rule != "thresholds":
            for key in keys:
                raise ValueError(
                    f"output.{key}: the output rule '{rule}' does not follow it; remove it, or "
                    'choose rule = "thresholds"'
                )
            return
        demand = self.demand()
        if self.fairness.blind and demand.reads_group:
            raise ValueError(
                f'fairness.blind: thresholds by = "{demand.by}" read the group; choose by = '
                '"none", or "client"'
            )
        if demand.reads_client and self.output.local_tolerance is None:
            raise ValueError(
                f'output.local_tolerance: with by = "{demand.by}" state the largest violation at '
                'each client, such as 0.05, or "none": under a bound for everyone alone, one '
                "client may favour one group, and another client the other"
            )

    def goal(self, attributes: tuple[str, ...]) -> Goal:
        """Return the fairness goal on a task with these attributes."""
        chosen = self.fairness.sensitive or attributes
        require_known("sensitive attribute", chosen, attributes, where="fairness.sensitive")
        return Goal(
            notions=self.fairness.notion,
            attributes=chosen,
            intersections=self.fairness.intersections,
            dead_zone=self.fairness.dead_zone or 0.0,
        )

    @property
    def applied_task(self) -> Task | None:
        """The task that rows are read by: `task`, as far as the model may see it."""
        if self.task is None or not self.fairness.blind:
            return self.task
        return self.task.model_copy(update={"sensitive_as_features": False})

    def output_rule(self) -> Rule:
        """Return the output rule, by default the strategy's usual one."""
        return self.output.rule or self.strategy.create().card.usual_rule

    def demand(self) -> Demand:
        """Return what thresholds are asked for, the tolerance apart."""
        asked = self.output.of_thresholds()
        if asked.get("local_tolerance") == "none":
            del asked["local_tolerance"]
        return Demand(**{"by": self.strategy.create().card.thresholds_by, **asked})

    def allowed(
        self,
        constraints: Constraints,
        rows: Iterable[np.ndarray],
        trained: np.ndarray | None = None,
    ) -> Allowed:
        """Return the violation that training and the output rule allow, as the tolerance demands.

        Without a tolerance training leaves gaps of up to one standard error alone, which its rows
        cannot tell from 0, at most .03.

        Parameters
        ----------
        rows : iterable of ndarray (C, 2)
            The rows that will be measured, by cell and label; those of clients are added up. The
            fewer they are, the less is allowed (`Constraints.margin`), but at least half of the
            tolerance.
        trained : ndarray (C, 2), optional
            The rows that are trained on; None if nothing is.
        """
        tolerance = self.fairness.tolerance
        if tolerance is None:
            loose = any(notion(name).events[0].labels != (0, 1) for name in self.fairness.notion)
            margin, dead_zone, output = 0.0, 0.0, 0.01 if loose else 0.005
            if trained is not None:
                dead_zone = min(constraints.standard_error(trained), _WIDEST)
        else:
            margin = min(constraints.margin(np.sum([*rows], axis=0)), tolerance / 2)
            dead_zone = output = tolerance - margin
        if self.fairness.dead_zone is not None:
            dead_zone = self.fairness.dead_zone
        if self.output.tolerance is not None:
            output = self.output.tolerance
        return Allowed(margin, dead_zone, output)

    def server_rounds(self) -> int:
        """Return the number of rounds: one for every local epoch, if a round is one gradient."""
        steps = self.strategy.create().card.steps
        return self.training.rounds * (self.training.local_epochs if steps == "gradient" else 1)

    def identity(self, data: str) -> str:
        """Return the hash of all that decides the result; `data` names rows and split."""
        # Where a file lies does not matter; `data` holds the hash of what is in it.
        # Nor does whether bounds may be enlarged: without that, there is no result to be another.
        without = {"data": {"csv", "path"}, "output": {"relax"}}
        settings = self.model_dump(mode="json", exclude=without)
        return fingerprint([settings, data, __version__])


def make_config(values: Mapping[str, Any], source: str = "configuration") -> Config:
    """Validate a nested mapping; errors are one line starting with `source`.

    Where no rounds are stated, a literal preset gets its own number of server steps.

    Examples
    --------
    >>> literal = {"strategy": {"name": "mfairfl-paper"}}
    >>> make_config(literal).server_rounds()
    200
    >>> make_config({**literal, "training": {"rounds": 3}}).server_rounds()
    6
    """
    try:
        return _with_own_steps(Config.model_validate(values))
    except pydantic.ValidationError as error:
        raise ConfigError(f"{source}: {first_problem(error, Config)}") from None
    except MfairflError as error:
        raise ConfigError(f"{source}: {error}") from None


def _with_own_steps(config: Config) -> Config:
    """Return the configuration with the rounds of a literal preset, unless rounds are stated."""
    training, steps = config.training, config.strategy.create().card.server_steps
    if steps is None or "rounds" in training.model_fields_set:
        return config
    # The record then states what is run, and what it says is not derived again.
    rounds = math.ceil(steps / training.local_epochs)
    own = training.model_copy(update={"rounds": rounds})
    return config.model_copy(update={"training": own})
