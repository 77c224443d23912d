"""A study file: data × split × strategies × notions × seeds × budgets, as one work list.

A method that is trained for no notion is run once and appears in every notion's column. Studies
that ask for the same run share its directory. Pooled references are a work list of their own.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from mfairfl.data.values import StrictModel
from mfairfl.errors import ConfigError, first_problem, unknown
from mfairfl.fairness import notion
from mfairfl.files import load_toml
from mfairfl.references import ReferenceName
from mfairfl.runs.config import Config, StrategyConfig, StrategyName, make_config
from mfairfl.runs.options import nested, settings
from mfairfl.strict_json import fingerprint

Lock = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Chosen values: data label → strategy → dotted key of the configuration → value."""

_FOR_A_NOTION = ("select", "mixture", "thresholds")  # output rules that look at the violation


class DataVariant(StrictModel):
    """A data set from the catalogue (`name`), or a run's configuration file (`config`)."""

    label: str
    name: str | None = None
    config: str | None = None
    sensitive: tuple[str, ...] | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"config" if value.endswith(".toml") else "name": value}
        if not isinstance(value, dict):
            return value
        source = value.get("name") or value.get("config") or ""
        return {"label": Path(str(source)).stem, **value}

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.name is None) == (self.config is None):
            raise ValueError("give either name (from the catalogue) or config (a TOML file)")
        return self


class StrategyVariant(StrategyConfig):
    """A method; further keys are its hyper-parameters, and a list of values is a grid.

    `tuned_as` names the method whose locked values it takes; `search` replaces the grids a tuner
    would go through.
    """

    name: StrategyName
    label: str
    tuned_as: str
    search: dict[str, tuple[Any, ...]] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        given = {"name": value} if isinstance(value, str) else value
        if not isinstance(given, dict):
            return given
        label = given.get("label", given.get("name", ""))
        return {"label": label, "tuned_as": label, **given}

    def expanded(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield a label and dotted settings for every point of the grid."""
        given = self.model_extra or {}
        grid = {key: value for key, value in given.items() if isinstance(value, list)}
        for point in itertools.product(*grid.values()):
            chosen = dict(zip(grid, point, strict=True))
            label = " ".join([self.label, *(f"{key}={value}" for key, value in chosen.items())])
            values = {"name": self.name} | given | chosen
            yield label, {f"strategy.{key}": value for key, value in values.items()}


def _seeds(value: Any) -> Any:
    return tuple(range(value)) if isinstance(value, int) and not isinstance(value, bool) else value


def _require_once(key: str, values: Sequence[Any], fix: str) -> None:
    twice = sorted(value for value in values if values.count(value) > 1)
    if twice:
        raise ValueError(f"{key}: {twice[0]!r} appears twice; {fix}")


class Study(StrictModel):
    """The contents of a study file.

    Parameters
    ----------
    data
        Names from the catalogue, configuration files, or tables with `label`, `name` or `config`,
        `sensitive`, and `options` of the split.
    splits
        Schemes of `mfairfl.partition`; "own" leaves it to the data's configuration.
    protocols
        Budgets, "rounds x local epochs".
    seeds
        Their number, or a list of them.
    notions
        One model is trained for each; none at all compares client fairness alone.
    references
        Pooled models that stand beside the methods: "boosting", "boosting-threshold", "logistic".
        They see all rows; they are not federated, and not tested.
    reference
        The method (its label) the others are tested against: mFairFL, or the first.
    kind
        "table", or "curves" for test numbers over rounds.
    lock
        A file of chosen hyper-parameters, relative to this file.
    base
        Keys of a run's configuration that apply to all runs.
    """

    title: str = "Comparison"
    data: tuple[DataVariant, ...] = Field(min_length=1)
    splits: tuple[str, ...] = Field(default=("own",), min_length=1)
    notions: tuple[str, ...] = ("demographic_parity",)
    protocols: tuple[Annotated[str, Field(pattern=r"^[1-9]\d*x[1-9]\d*$")], ...] = Field(
        default=("40x2",), min_length=1
    )
    seeds: Annotated[tuple[int, ...], BeforeValidator(_seeds), Field(min_length=1)] = (0, 1, 2)
    strategies: tuple[StrategyVariant, ...] = Field(min_length=1)
    references: tuple[ReferenceName, ...] = ()
    reference: str | None = None
    kind: Literal["table", "curves"] = "table"
    lock: str | None = None
    base: dict[str, Any] = Field(default_factory=dict)

    @field_validator("notions")
    @classmethod
    def _long_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(notion(name).name for name in value)
        except ConfigError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        _require_once("data", [d.label for d in self.data], "give it a label")
        labels = [*self.labels, *dict.fromkeys(self.references)]
        _require_once("strategies", labels, "give it a label")
        for key in ("references", "seeds", "splits", "notions", "protocols"):
            _require_once(key, getattr(self, key), "give it once")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.reference is not None and self.reference not in self.labels:
            raise ValueError(f"reference: {unknown('strategy', self.reference, self.labels)}")
        if "boosting-threshold" in self.references and not self.notions:
            raise ValueError("references: boosting-threshold is fitted for a notion; give notions")
        if self.kind == "table":
            return self
        if self.references:
            raise ValueError("references: have no rounds to draw; use them with kind = 'table'")
        if max(len(self.splits), len(self.notions)) > 1:
            raise ValueError("kind: curves are drawn for one split and one notion; give one each")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """The methods; every point of a grid is one."""
        return tuple(label for variant in self.strategies for label, _ in variant.expanded())

    @property
    def tested_against(self) -> str:
        """The reference; mFairFL or the first method if the file names none."""
        return self.reference or ("mfairfl" if "mfairfl" in self.labels else self.labels[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of a study, and where it stands in the tables; `notion` is "" for none.

    A `pooled` reference has no rounds: the same one stands in the table of every protocol.
    """

    data: str
    split: str
    protocol: str
    strategy: str
    notion: str
    seed: int
    config: Config
    pooled: bool = False

    def directory(self, folder: Path) -> Path:
        """Return the run directory below `folder`."""
        training = self.config.training
        budget = f"{training.rounds}x{training.local_epochs}"
        how = ("pooled", self.strategy) if self.pooled else (budget, self.config.strategy.name)
        words = (self.data, self.split, *how, self.notion or "any", self.seed)
        return folder / run_name(words, self.config)


def run_name(words: Sequence[str | int], config: Config) -> str:
    """Return a run directory's name: readable, and different for different settings."""
    digest = fingerprint(config.model_dump(mode="json"))[:10]
    return re.sub(r"[^\w.+-]+", "_", "-".join(str(word) for word in words)) + f"-{digest}"


def load_study(source: str | Path | Mapping[str, Any]) -> Study:
    """Read a study file, or its contents; every error is one line that names file and key.

    Paths in it are relative to the file.
    """
    where, folder, values = "study", Path(), source
    if isinstance(source, str | Path):
        where, folder, values = str(source), Path(source).parent, load_toml(Path(source))
    try:
        study = Study.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: {first_problem(error, Study)}") from None
    data = tuple(
        d if d.config is None else d.model_copy(update={"config": str(folder / d.config)})
        for d in study.data
    )
    lock = None if study.lock is None else str(folder / study.lock)
    return study.model_copy(update={"data": data, "lock": lock})


class _Place(NamedTuple):
    """Where trials stand in the tables, and the settings that this decides."""

    where: dict[str, Any]
    """Protocol, data, split and seed."""
    base: dict[str, Any]
    """Sections that hold for all trials on the data set."""
    rows: dict[str, Any]
    """By dotted key: which rows a trial trains and measures on."""


def _places(study: Study) -> Iterator[_Place]:
    """Yield every protocol, data set, split and seed."""
    for protocol, data, split, seed in itertools.product(
        study.protocols, study.data, study.splits, study.seeds
    ):
        file = {} if data.config is None else settings(data.config, {})
        base = {  # the data's own file wins
            key: {**study.base.get(key, {}), **value} if isinstance(value, dict) else value
            for key, value in {**study.base, **file}.items()
        }
        rows = {
            "data.name": data.name,
            "data.sensitive": data.sensitive and list(data.sensitive),
            "clients.scheme": None if split == "own" else split,
            "clients.options": data.options or None,
            "seed": seed,
        }
        rows = {key: value for key, value in rows.items() if value is not None}
        where = {"protocol": protocol, "data": data.label, "split": split, "seed": seed}
        yield _Place(where, base, rows)


def trials(study: Study) -> list[Trial]:
    """Return the work list, budget by budget, data set by data set.

    Examples
    --------
    >>> study = Study(data=("adult",), strategies=("fedavg", "mfairfl"), notions=("dp", "eo"))
    >>> [(t.strategy, t.notion) for t in trials(study) if t.seed == 0]
    [('fedavg', ''), ('mfairfl', 'demographic_parity'), ('mfairfl', 'equalized_odds')]
    """
    lock: Lock = {} if study.lock is None else load_toml(Path(study.lock))
    return [
        trial
        for place in _places(study)
        for variant in study.strategies
        for trial in _trials_of(study, lock, place, variant)
    ]


def _trials_of(
    study: Study, lock: Lock, place: _Place, variant: StrategyVariant
) -> Iterator[Trial]:
    data = place.where["data"]
    rounds, epochs = (int(part) for part in place.where["protocol"].split("x"))
    for label, hyper_parameters in variant.expanded():
        options = {
            **place.rows,
            # A curve has a point for every round.
            **({"training.evaluate_every": 1} if study.kind == "curves" else {}),
            **lock.get(data, {}).get(variant.tuned_as, {}),
            **hyper_parameters,
            "training.rounds": rounds,
            "training.local_epochs": epochs,
        }
        source = f"{label} on {data}"
        config = make_config(nested(options, place.base), source)
        if (steps := config.server_rounds()) != rounds:
            # Budgets of as many steps are one run.
            options |= {"training.rounds": steps, "training.local_epochs": 1}
        for goal in _goals(study, config):
            if goal:
                options["fairness.notion"] = goal
            config = make_config(nested(options, place.base), source)
            yield Trial(**place.where, strategy=label, notion=goal, config=config)


def reference_trials(study: Study) -> list[Trial]:
    """Return the pooled references of a study, for every protocol, data set, split and seed.

    Examples
    --------
    >>> study = Study(data=("adult",), strategies=("fedavg",), references=("boosting",), seeds=2)
    >>> [(t.strategy, t.notion, t.seed) for t in reference_trials(study)]
    [('boosting', '', 0), ('boosting', '', 1)]
    """
    return [
        Trial(
            **place.where,
            strategy=name,
            notion=goal,
            config=_reference_config(place, goal),
            pooled=True,
        )
        for place in _places(study)
        for name in study.references
        for goal in (study.notions if name == "boosting-threshold" else ("",))
    ]


def _reference_config(place: _Place, goal: str) -> Config:
    """Return the rows and, for thresholds, the goal; how methods train plays no part."""
    sections = ("data", "task", "clients", *(("fairness", "output") if goal else ()))
    base = {key: value for key, value in place.base.items() if key in sections}
    aim = {"fairness.notion": goal, "output.rule": "thresholds"} if goal else {}
    source = f"references on {place.where['data']}"
    config = make_config(nested(place.rows | aim, base), source)
    losses = [name for name in config.fairness.notion if notion(name).statistic == "loss"]
    if goal and losses:
        raise ConfigError(
            f"{source}: boosting-threshold changes decisions, not losses; leave it out or "
            f"use another notion than '{losses[0]}'"
        )
    return config


def _goals(study: Study, config: Config) -> tuple[str, ...]:
    """Return the notions for which a model is trained each, or "" if the method uses none."""
    fair = config.strategy.create().card.constrained
    if not fair and config.output_rule() not in _FOR_A_NOTION:
        return ("",)
    return study.notions or config.fairness.notion
