"""The options of a run, stated once.

They are the flags of `mfairfl train` (with hyphens), the keywords of `mfairfl.train` (with
underscores), and short names of configuration keys.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mfairfl.errors import ConfigError, require_known
from mfairfl.files import load_toml

Kind = Literal["text", "integer", "number", "names", "integers", "range", "cuts", "switch", "flag"]
_METAVARS = {
    "names": "NAME,...",
    "integers": "INTEGER,...",
    "range": "LOW,HIGH",
    "cuts": "NAME=A,B",
}


class Option(NamedTuple):
    """An option of a run or an audit.

    Parameters
    ----------
    key : str
        The configuration key it sets.
    kind : str
        What it holds; `names`, `integers`, `range` and `cuts` are separated by commas on the
        command line; a `switch` is true unless the flag ``--no-NAME`` is given, a `flag`
        is false unless it is.
    help : str
        One line for the command line's help.
    panel : str
        Under which heading the help shows it.
    repeated : bool
        Whether the flag may be given several times; all values together are its value.
    """

    key: str
    kind: Kind
    help: str
    panel: str
    repeated: bool = False

    @property
    def metavar(self) -> str:
        """What the help shows in place of a value."""
        return _METAVARS.get(self.kind, self.kind.upper())

    def parse(self, text: str) -> Any:
        """Read a value from the command line; the configuration checks it.

        Examples
        --------
        >>> OPTIONS["lr"].parse("0.1"), OPTIONS["hidden"].parse("64,64")
        (0.1, [64, 64])
        >>> Option("bins", "cuts", "", "").parse("age=40,60")
        {'age': [40, 60]}
        """
        match self.kind:
            case "text":
                return text
            case "names":
                return comma_list(text)
            case "integers":
                return [toml_value(part) for part in comma_list(text)]
            case "range":
                return _numbers(text, "write LOW,HIGH, such as 0,1", count=2)
            case "cuts":
                name, _, cuts = text.rpartition("=")
                advice = "write NAME=A,B with numbers, such as age=40,60"
                return {name.strip(): _numbers(cuts if name.strip() else "", advice)}
        return toml_value(text)


_PANELS: dict[str, dict[str, tuple[str, Kind, str]]] = {
    "Data": {
        "data": ("data.name", "text", "Data set from `mfairfl data list`."),
        "csv": ("data.csv", "text", "Your own file: CSV, Excel, JSON or Parquet."),
        "label": ("task.label", "text", "With --csv: column to predict."),
        "favourable": ("task.favourable", "text", "With --csv: the desirable label value."),
        "sensitive": ("data.sensitive", "names", "Sensitive attributes: sex,age."),
        "client": ("task.client", "text", "With --csv: column that holds each row's client."),
        "delimiter": ("data.delimiter", "text", "With --csv: delimiter; detected if omitted."),
        "encoding": ("data.encoding", "text", "With --csv: encoding; detected if omitted."),
        "header": (
            "data.header",
            "switch",
            "With --csv: the first line is data; columns are called column-1, column-2, ...",
        ),
        "sheet": ("data.sheet", "text", "With --csv: sheet of an Excel file, if several."),
        "heterogeneity": (
            "clients.scheme",
            "text",
            "How rows are split among clients: high, low, iid, dirichlet, size-skew, column, ...",
        ),
        "clients": ("clients.count", "integer", "Number of clients."),
        "concentration": (
            "clients.options.concentration",
            "number",
            "With --heterogeneity dirichlet: its parameter, 0.5; if smaller, clients differ more.",
        ),
    },
    "Fairness": {
        "strategy": ("strategy.name", "text", "Method from `mfairfl strategies`."),
        "notion": ("fairness.notion", "names", "Fairness notions: dp, eo, eopp, ap, or dp,eo."),
        "tolerance": (
            "fairness.tolerance",
            "number",
            "Largest acceptable violation: training and output rule aim at it, the report judges.",
        ),
        "blind": (
            "fairness.blind",
            "flag",
            "Measure sensitive columns, and show them neither to the model nor to the rule.",
        ),
        "output_rule": (
            "output.rule",
            "text",
            "Which model is served: last, average, select, mixture or thresholds.",
        ),
        "by": (
            "output.by",
            "text",
            "With thresholds: whose may differ: none, group, client or both.",
        ),
        "local_tolerance": (
            "output.local_tolerance",
            "number",
            "With thresholds: largest violation at each client, or none.",
        ),
        "maximise": (
            "output.maximise",
            "text",
            "With thresholds: accuracy, balanced_accuracy or worst_client_accuracy.",
        ),
        "randomise": (
            "output.randomise",
            "flag",
            "With thresholds: decide some people by chance where that is more accurate.",
        ),
        "relax": (
            "output.relax",
            "flag",
            "With thresholds: enlarge bounds that cannot be met, as little as possible.",
        ),
        "weights": ("strategy.weights", "text", "Weights of the clients: size or uniform."),
    },
    "Model and training": {
        "hidden": (
            "model.hidden",
            "integers",
            "Widths of the hidden layers: 64,64; '' for logistic regression.",
        ),
        "rounds": ("training.rounds", "integer", "Communication rounds."),
        "local_epochs": ("training.local_epochs", "integer", "Local epochs per round."),
        "batch_size": ("training.batch_size", "integer", "Mini-batch size."),
        "lr": ("training.lr", "number", "Initial learning rate."),
        "weight_decay": ("training.weight_decay", "number", "Decoupled weight decay."),
    },
    "Run": {
        "seed": ("seed", "integer", "Random seed; the same seed gives the same results."),
        "robust": ("robust", "text", "Defence against dishonest clients: auto, or a rule."),
    },
}

OPTIONS = {
    name: Option(*option, panel)
    for panel, rows in _PANELS.items()
    for name, option in rows.items()
}
"""By the keyword of `mfairfl.train`; the flag has hyphens instead of underscores."""


def comma_list(text: str) -> list[str]:
    """Split `sex,age` at its commas; an empty text is an empty list.

    Examples
    --------
    >>> comma_list("sex, age"), comma_list("")
    (['sex', 'age'], [])
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def toml_value(text: str) -> Any:
    """Read a TOML value; anything else is taken as plain text.

    Examples
    --------
    >>> toml_value("0.6"), toml_value("[64, 64]"), toml_value("uniform")
    (0.6, [64, 64], 'uniform')
    """
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    # A text with a line break could bring further keys.
    return parsed["value"] if len(parsed) == 1 else text


def _numbers(text: str, advice: str, count: int | None = None) -> list[Any]:
    numbers = [toml_value(part) for part in comma_list(text)]
    numeric = all(isinstance(number, int | float) for number in numbers)
    if not (numeric and numbers and len(numbers) == (count or len(numbers))):
        raise ConfigError(advice)
    return numbers


def nested(options: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a nested configuration in which dotted keys of `options` override `base`.

    Examples
    --------
    >>> nested({"training.rounds": 3}, {"training": {"rounds": 40, "lr": 0.1}})
    {'training': {'rounds': 3, 'lr': 0.1}}
    """
    result: dict[str, Any] = {
        key: dict(value) if isinstance(value, Mapping) else value
        for key, value in (base or {}).items()
    }
    for dotted, value in options.items():
        *path, last = dotted.split(".")
        level = result
        for part in path:
            inner = level.get(part, {})
            if not isinstance(inner, Mapping):
                raise ConfigError(f"{dotted}: '{part}' is a single value, not a section")
            level[part] = dict(inner)
            level = level[part]
        level[last] = value
    return result


def dotted(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of a nested mapping by their dotted keys.

    Examples
    --------
    >>> dotted({"training": {"rounds": 3}, "seed": 0})
    {'training.rounds': 3, 'seed': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = isinstance(value, Mapping)
        flat |= dotted(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return flat


def settings(
    config: str | Path | Mapping[str, Any] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Lay options (short or dotted names) over a TOML file or mapping.

    Paths of the data in a TOML file are relative to that file's folder. `sensitive` chooses among
    the attributes of a task; together with `csv` or `label` it is part of a new task.

    Examples
    --------
    >>> settings({"training": {"rounds": 40}}, {"rounds": 3, "strategy.beta": 0.6})
    {'training': {'rounds': 3}, 'strategy': {'beta': 0.6}}
    """
    base: Mapping[str, Any] = {}
    source = "options"
    if isinstance(config, Mapping):
        base, source = config, "configuration"
    elif config is not None:
        base, source = _anchored(Path(config)), str(config)
    keys = {name: option.key for name, option in OPTIONS.items()}
    if "task" not in base and not {"csv", "label"}.isdisjoint(options):
        keys["sensitive"] = "task.sensitive"
    require_known("option", [name for name in options if "." not in name], keys)
    try:
        merged = nested({keys.get(name, name): value for name, value in options.items()}, base)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return merged


def _anchored(path: Path) -> dict[str, Any]:
    values = load_toml(path)
    data = values.get("data")
    if isinstance(data, dict):
        for key in {"csv", "path"} & data.keys():
            if isinstance(data[key], str):
                data[key] = str(path.parent / data[key])
    return values
