"""What a table means: label, favourable value, sensitive attributes, roles of the columns."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from mfairfl.data.values import MISSING, Policy, Reading, StrictModel, Text
from mfairfl.errors import ConfigError, require_known


def _repeated(names: tuple[str, ...]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


class Bin(StrictModel):
    """A named group: a set of values, or the closed interval [min, max] of a numeric column.

    Leave out `min` or `max` for an interval without that end.

    Examples
    --------
    >>> Bin(name="25-60", min=25, max=60).contains(60.0)
    True
    """

    name: Text
    values: tuple[Text, ...] | None = None
    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.values is None) == (self.min is None and self.max is None):
            raise ConfigError(f"bin '{self.name}': give either values, or min and/or max")
        if self.values == ():
            raise ConfigError(f"bin '{self.name}': values is empty: list at least one value")
        low, high = self.interval
        if low > high:
            raise ConfigError(f"bin '{self.name}': min {low:g} is above max {high:g}: swap them")
        return self

    @property
    def interval(self) -> tuple[float, float]:
        """The two ends, infinite where none was given."""
        low = -math.inf if self.min is None else self.min
        return low, math.inf if self.max is None else self.max

    def contains(self, number: float) -> bool:
        """Return whether an interval contains `number`; a set of values contains none."""
        low, high = self.interval
        return self.values is None and low <= number <= high


def _overlap(a: Bin, b: Bin) -> str | None:
    """Name a value that lies in both bins."""
    a, b = (b, a) if a.values is None else (a, b)
    if a.values is None:
        (a_low, a_high), (b_low, b_high) = a.interval, b.interval
        low, high = max(a_low, b_low), min(a_high, b_high)
        return f"{low if math.isfinite(low) else high:g}" if low <= high else None
    for value in a.values:
        with contextlib.suppress(ValueError):  # text lies in no interval
            if value in (b.values or ()) or b.contains(float(value)):
                return value
    return None


class Sensitive(StrictModel):
    """A sensitive attribute: a column, and optionally how its values form groups.

    Without `bins` each distinct value is a group, sorted as text. With `bins` the groups are the
    bins in their order, then `rest`, which takes every value outside them; without `rest` such a
    value is an error. A missing value is never put into `rest`: its row has the group ``?``, not
    recorded, and is never compared. With bins, a bin of another name that lists ``"?"`` in its
    values makes missing values a group like the others. `groups` fixes the groups and the
    order of their codes, also for files in which some of them have no member. `name` defaults to
    the column.

    Examples
    --------
    >>> young = Bin(name="25-60", min=25, max=60)
    >>> Sensitive(column="age", bins=(young,), rest="other").levels
    ('25-60', 'other')
    """

    column: str
    bins: tuple[Bin, ...] = ()
    rest: Text | None = None
    name: str = ""
    groups: tuple[Text, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_column(cls, data: Any) -> Any:
        data = {"column": data} if isinstance(data, str) else data
        if isinstance(data, dict) and not data.get("name") and "column" in data:
            return {**data, "name": data["column"]}
        return data

    @model_validator(mode="after")
    def _check(self) -> Self:
        where = f"sensitive attribute '{self.name}'"
        if self.rest is not None and not self.levels:
            raise ConfigError(f"{where}: rest '{self.rest}' needs bins or groups as well")
        for a, b in itertools.combinations(self.bins, 2):
            if (value := _overlap(a, b)) is not None:
                raise ConfigError(
                    f"{where}: bins '{a.name}' and '{b.name}' both contain {value}: "
                    "bins are closed intervals and may not overlap"
                )
        levels = self.levels
        if (name := _repeated(levels)) is not None:
            raise ConfigError(f"{where}: group '{name}' occurs twice: give each its own name")
        bins = {b.name for b in self.bins} | ({self.rest} if self.rest is not None else set())
        if self.bins and set(levels) != bins:
            raise ConfigError(
                f"{where}: groups {', '.join(levels)} are not the bins {', '.join(sorted(bins))}: "
                "use the same names"
            )
        return self

    @property
    def levels(self) -> tuple[str, ...]:
        """The groups in the order of their codes; none if the table decides."""
        rest = () if self.rest is None else (self.rest,)
        if self.groups is not None:
            return self.groups + tuple(name for name in rest if name not in self.groups)
        return tuple(b.name for b in self.bins) + rest if self.bins else ()

    @property
    def bin_of_value(self) -> dict[str, str]:
        """The name of the bin of every value that a bin lists."""
        return {value: b.name for b in self.bins for value in b.values or ()}

    @property
    def intervals(self) -> tuple[Bin, ...]:
        """The bins that are intervals."""
        return tuple(b for b in self.bins if b.values is None)

    def with_unrecorded(self, values: Sequence[str]) -> Sensitive:
        """Return the attribute with the group ``?`` after its groups, by default its `values`."""
        groups = self.levels or tuple(values)
        if MISSING in groups:
            return self
        extra = (Bin(name=MISSING, values=(MISSING,)),) if self.bins else ()
        return self.model_copy(update={"groups": (*groups, MISSING), "bins": (*self.bins, *extra)})


@dataclass(frozen=True, slots=True)
class Attribute:
    """A sensitive attribute; a row's group code is an index into `groups`.

    The group ``?`` holds the rows of which the attribute is not recorded. They count like all
    others, but are outside every comparison of its groups, on both sides.

    Examples
    --------
    >>> race = Attribute("race", ("Black", "White", "?"))
    >>> race.size, race.recorded
    (3, ('Black', 'White'))
    """

    name: str
    groups: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many groups the attribute has."""
        return len(self.groups)

    @property
    def recorded(self) -> tuple[str, ...]:
        """The groups that are compared: all but ``?``."""
        return tuple(group for group in self.groups if group != MISSING)


class Task(Reading):
    """The meaning of a table: what is predicted, for whom it has to be fair, from which columns.

    Parameters
    ----------
    label
        Column with exactly two values, or more with `others_unfavourable`. Rows without a label
        are left out, and counted.
    favourable
        The value of the label that is good for a person (granted, hired, not accused). Any scalar;
        compared as `canonical_text`, so 1, 1.0 and "1" agree. Spellings such as true, True, 1 and
        yes are told apart only in a file where they differ.
    sensitive
        One or more `Sensitive` attributes, or names of columns. With none at all, ``()``,
        nothing is compared: for plain training on rows in memory.
    numeric, categorical
        Feature columns. Give both and the features are exactly these; leave one out and every
        remaining column is taken as numeric if it holds numbers, else as categorical. Numbers
        with leading zeros ("007") count as text.
    ignore
        Columns that are not features. A sensitive column may be listed here.
    client
        Column that names the client each row belongs to; never a feature. Rows without a client
        are left out, and counted.
    sensitive_as_features
        False keeps every sensitive column out of the features, also one listed in a role.
    missing
        "level": a missing category is the level "?", a missing number is filled with the mean and
        marked in a column of its own, a missing sensitive value is the group "?" (not recorded).
        "drop": rows with a missing value are left out, and counted. "error": they are refused, and
        so are a missing label and a missing client. One column may have another policy:
        ``columns={"age": ColumnRules(missing="drop")}``.
    unknown_category
        A category not seen in training: "ignore" encodes it as all zeros, "error" refuses it.
    unfavourable
        The other value of the label. Detected if omitted; a file that holds only one of the two
        values is accepted when both are given.
    others_unfavourable
        Every value of the label other than the favourable one is unfavourable (heart disease: 0
        against 1 to 4).
    decimal, thousands, missing_codes, columns
        How cells are read; see `Reading`. A notation that is not given is found out, and what was
        found is in the notes.

    Examples
    --------
    >>> task = Task(label="hired", favourable=1.0, sensitive=("sex",))
    >>> task.favourable, task.sensitive[0].name
    ('1', 'sex')
    """

    label: str
    """Column to predict."""
    favourable: Text
    """The desirable value of the label."""
    sensitive: tuple[Sensitive, ...]
    """Groups to be treated fairly; bins are closed intervals."""
    numeric: tuple[str, ...] | None = None
    """Features that are numbers."""
    categorical: tuple[str, ...] | None = None
    """Features that are categories."""
    ignore: tuple[str, ...] = ()
    """Columns that are not features."""
    client: str | None = Field(default=None, examples=["site"])
    """Column that holds each row's client."""
    sensitive_as_features: bool = True
    """Whether the model may use sensitive columns."""
    missing: Policy = "level"
    """Level: fill and mark, or a level of its own; drop: leave rows out; or error."""
    unknown_category: Literal["ignore", "error"] = "ignore"
    """Category not seen in training: ignore or error."""
    unfavourable: Text | None = None
    """The other value of the label."""
    others_unfavourable: bool = False
    """Whether every label other than the favourable one is unfavourable."""

    @field_validator("sensitive", mode="before")
    @classmethod
    def _one_needs_no_list(cls, sensitive: Any) -> Any:
        return (sensitive,) if isinstance(sensitive, str) else sensitive

    @model_validator(mode="after")
    def _check(self) -> Self:
        label, client, features = self.label, self.client, self.features
        name, column = _repeated(tuple(s.name for s in self.sensitive)), _repeated(features)
        both, bad = sorted(set(features) & set(self.ignore)), self.unfavourable
        protected = [s.column for s in self.sensitive]
        problems = {
            f"two sensitive attributes are called '{name}': set name= on one": name is not None,
            f"column '{column}' is listed twice in numeric and categorical": column is not None,
            f"the label column '{label}' cannot be a feature: unlist it": label in features,
            f"the client column '{client}' cannot be a feature: unlist it": client in features,
            f"the label column '{label}' cannot be sensitive too": label in protected,
            f"column '{label}' cannot be both the label and the client": label == client,
            f"column '{''.join(both[:1])}' is both a feature and ignored: choose one": both,
            f"favourable and unfavourable are both '{bad}'": self.favourable == bad,
        }
        for problem, present in problems.items():
            if present:
                raise ConfigError(problem)
        return self

    def policy(self, column: str) -> Policy:
        """Return what happens to rows without a value in a column."""
        return self.rules(column).missing or self.missing

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that have a role."""
        return (self.numeric or ()) + (self.categorical or ())

    @property
    def has_roles(self) -> bool:
        """Whether the features are exactly those that are listed."""
        return self.numeric is not None and self.categorical is not None

    def require_roles(self) -> None:
        """Refuse the task where columns have no role yet."""
        if not self.has_roles:
            raise ConfigError("the task's columns have no roles yet: use the task of a table")

    @property
    def named_columns(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        # A misspelt column in `ignore` would become a feature.
        ignored = () if self.has_roles else self.ignore
        clients = () if self.client is None else (self.client,)
        protected = (s.column for s in self.sensitive)
        return (self.label, *protected, *self.features, *ignored, *clients)

    @property
    def not_features(self) -> set[str | None]:
        """The columns that are never a feature, whatever role they have."""
        protected = () if self.sensitive_as_features else (s.column for s in self.sensitive)
        return {self.label, self.client, *self.ignore, *protected}

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The sensitive attributes of a resolved task, with their groups."""
        return tuple(Attribute(s.name, s.levels) for s in self.sensitive)

    def unnamed_as_unrecorded(self) -> Task:
        """Return the task with sensitive values outside the named groups read as ``?``."""
        sensitive = list(self.sensitive)
        for i, s in enumerate(sensitive):
            if s.rest is None and MISSING in (s.groups or ()):
                sensitive[i] = s.model_copy(update={"rest": MISSING})
        return self.model_copy(update={"sensitive": tuple(sensitive)})

    def select(self, names: Sequence[str] | None) -> Task:
        """Keep the sensitive attributes of these names, in this order; None keeps all.

        Examples
        --------
        >>> task = Task(label="hired", favourable=1, sensitive=("sex", "race"))
        >>> [s.name for s in task.select(["race"]).sensitive]
        ['race']
        """
        if names is None:
            return self
        if isinstance(names, str) or not names:
            raise ConfigError(f"sensitive={names!r}: give a sequence of names, such as ('sex',)")
        attributes = {s.name: s for s in self.sensitive}
        require_known("sensitive attribute", names, attributes)
        return self.model_copy(update={"sensitive": tuple(attributes[name] for name in names)})

    @property
    def resolved(self) -> bool:
        """Whether roles, groups and both label values are fixed, as in the task of a `Table`."""
        values_known = all(s.groups is not None for s in self.sensitive)
        return self.has_roles and self.unfavourable is not None and values_known
