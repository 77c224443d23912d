"""What may be asked of a rule of thresholds, and the rule that answers it.

Clients count their rows by cell, label and bin of the logit (`ScoreHistogram`). Whatever a
`Demand` bounds is linear in the rows that a rule selects: the gaps between groups, of everyone and
of one client; each client's accuracy; each group's selection and true positive rate. So the best
rule is a linear programme (`programme`). Hardt, Price, Srebro (2016) for one notion and attribute;
with clients' own thresholds and bounds for each client, as LoGoFair (Zhang et al., AAAI 2025).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError, DataError, require_known
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.histogram import ScoreHistogram, pooled_histogram
from mfairfl.fairness.programme import Bounds, Programme, Solution
from mfairfl.fairness.thresholds import Thresholds

Floats = NDArray[np.float64]

By = Literal["none", "group", "client", "both"]
Objective = Literal["accuracy", "balanced_accuracy", "worst_client_accuracy"]

_MOST_NUMBERS = 1 << 23  # of selected rows that are held at once: many clients get fewer bins
_MOST_ALIKE = 1e4  # rows; clients that do not differ at all share their thresholds
_ROUNDING = 1e-9
_AS_GOOD = 1e-3  # of the worst client's accuracy, for that of everyone: chosen on folds
_SHARES = (
    "tolerance",
    "local_tolerance",
    "least_client_accuracy",
    "least_selection_rate",
    "least_true_positive_rate",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a rule of thresholds is asked for.

    Parameters
    ----------
    by : {"none", "group", "client", "both"}
        Whose thresholds may differ: nobody's, groups', clients', or those of each client's groups.
    tolerance : float
        Largest violation of each constraint on the rows of everyone.
    local_tolerance : float, optional
        Largest violation on the rows of each client; None bounds none.
    maximise : {"accuracy", "balanced_accuracy", "worst_client_accuracy"}
        The objective. Of the rules that come within .001 of the best for the worst client, the
        most accurate is taken.
    costs : (float, float)
        What a wrong favourable and a wrong unfavourable decision cost: the least total cost takes
        the place of accuracy.
    least_client_accuracy : float, optional
        Every client's least accuracy.
    least_selection_rate, least_true_positive_rate : float, optional
        Every group's least rate ("levelling up").
    randomise : bool
        Whether some people may be decided by chance.
    relax : bool
        Whether bounds that cannot be met together are enlarged as little as possible, in place of
        an error.
    shrinkage : float
        How far thresholds of clients are drawn towards everyone's, chosen on folds: what they are
        chosen by has, beside a client's own rows, `shrinkage` times as many rows like everyone's
        as say as much of it (few where clients differ, many where they are alike); 0 adds none.

    Examples
    --------
    >>> Demand(by="both", tolerance=0.02, local_tolerance=0.05).reads_client
    True
    """

    by: By = "none"
    tolerance: float = 0.0
    local_tolerance: float | None = None
    maximise: Objective = "accuracy"
    costs: tuple[float, float] = (1.0, 1.0)
    least_client_accuracy: float | None = None
    least_selection_rate: float | None = None
    least_true_positive_rate: float | None = None
    randomise: bool = False
    relax: bool = False
    shrinkage: float = 4.0

    def __post_init__(self) -> None:
        require_known("output.by", [self.by], get_args(By))
        require_known("output.maximise", [self.maximise], get_args(Objective))
        for name in _SHARES:
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise ConfigError(f"output.{name} must lie in [0, 1], not {value}")
        if not all(math.isfinite(cost) and cost > 0 for cost in self.costs):
            raise ConfigError(f"output.costs = {list(self.costs)}: give two numbers above 0")
        if self.costs != (1.0, 1.0) and self.maximise != "accuracy":
            raise ConfigError(f"output.costs: maximise = '{self.maximise}' knows none; remove one")

    @property
    def reads_group(self) -> bool:
        """Whether a decision may depend on a person's group."""
        return self.by in ("group", "both")

    @property
    def reads_client(self) -> bool:
        """Whether a decision may depend on the client."""
        return self.by in ("client", "both")

    @property
    def levels_up(self) -> bool:
        """Whether there are bounds that perhaps no rule meets."""
        return any(getattr(self, name) is not None for name in _SHARES if "least" in name)

    @property
    def about_clients(self) -> bool:
        """Whether clients must be told apart."""
        bounded = (self.local_tolerance, self.least_client_accuracy) != (None, None)
        return self.reads_client or bounded or self.maximise == "worst_client_accuracy"

    def for_strangers(self) -> Demand:
        """Return what is asked of the rule for clients without thresholds of their own."""
        return replace(
            self,
            by="group" if self.reads_group else "none",
            local_tolerance=None,
            least_client_accuracy=None,
            maximise="accuracy" if self.maximise == "worst_client_accuracy" else self.maximise,
            relax=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedThresholds:
    """A rule of thresholds, and what is to be said of it on the rows that it was fitted to.

    Attributes
    ----------
    thresholds
        The rule.
    excess
        By how much it exceeds the bound that it exceeds most; 0 if it meets all.
    enlargement
        By how much all bounds were enlarged so that they can be met; 0 if they can.
    drawn
        The share of rows that are decided by chance.
    otherwise
        The chance that another client, drawn at random, would decide a row otherwise.
    """

    thresholds: Thresholds
    excess: float = 0.0
    enlargement: float = 0.0
    drawn: float = 0.0
    otherwise: float = 0.0


def refuse_losses(constraints: Constraints) -> None:
    """Refuse constraints that no threshold can meet, before anything is trained for them."""
    for notion in constraints.notions:
        if notion.statistic == "loss":
            raise ConfigError(
                f"notion '{notion.name}': thresholds change decisions, not losses; "
                "use 'accuracy_parity' (errors)"
            )


def fit_thresholds(
    histograms: Mapping[str, ScoreHistogram], constraints: Constraints, demand: Demand
) -> FittedThresholds:
    """Return the thresholds that reach the demand's objective best within its bounds.

    Parameters
    ----------
    histograms
        Each client's counts. A client that is not among them, and a cell of which a client has no
        rows, is decided by the rule for everyone (fitted without bounds for clients).
    constraints
        Any notions but loss-based ones, on any groupings of the same cells. A group without rows
        constrains nothing. With thresholds by group, cells of the same compared groups have one
        threshold, and a cell that no grouping compares (not recorded) keeps 0, that is, score ½.
    demand
        What is asked for.

    Raises
    ------
    ConfigError
        If the bounds cannot be met together and `demand.relax` is false.

    Notes
    -----
    Where several thresholds select the same rows, the one nearest 0 stands for them.

    Examples
    --------
    >>> from mfairfl.data import Attribute
    >>> from mfairfl.fairness import Cells, notion
    >>> parity = Constraints(Cells((Attribute("sex", ("F", "M")),)), notion("dp"))
    >>> z, cell, y = [-1, -1, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 1, 1, 1]
    >>> rows = {"north": ScoreHistogram.from_logits(z, cell, y, size=2)}
    >>> fitted = fit_thresholds(rows, parity, Demand(by="group", randomise=True))
    >>> fitted.thresholds.positive_probability([-1, 1, 1], [0, 0, 1]).round(6).tolist()
    [0.0, 1.0, 0.5]
    >>> fitted.drawn
    0.2
    """
    refuse_losses(constraints)
    everyone = pooled_histogram([histograms[client] for client in sorted(histograms)])
    if not everyone.numbers.size:
        raise DataError("score histogram: no cell has rows; count the clients' training rows")
    constraints.counts(everyone.rows)  # refuses another number of cells
    if not demand.about_clients:
        histograms = {"everyone": everyone}
    clients = sorted(histograms)
    usual = Thresholds(np.zeros((1, 1)), np.ones((1, 1)))
    if demand.reads_client:
        strangers = fit_thresholds({"everyone": everyone}, constraints, demand.for_strangers())
        usual = strangers.thresholds
    parts = _with_fewer_bins([histograms[client] for client in clients])
    counts = _Counts.of(parts, constraints, demand)
    if not counts.programme.blocks:
        return FittedThresholds(thresholds=usual)
    solution, enlargement = _solved(counts, constraints, demand)
    rules = _rules(counts, solution, usual, by_group=demand.reads_group)
    thresholds = rules[0]
    if demand.reads_client:
        thresholds = replace(usual, clients=dict(zip(clients, rules, strict=True)))
    asked = _bounds(counts, constraints, demand, versions=1).raised(np.array(-enlargement))
    excess = float(counts.programme.excess(asked, solution).max(initial=0.0))
    chance = np.array([rule.bin_chances(part) for rule, part in zip(rules, parts, strict=True)])
    rows = np.array([part.counts.sum(axis=1) for part in parts]) / everyone.rows.sum()
    others = (chance.sum(axis=0) - chance) / max(len(parts) - 1, 1)
    otherwise = chance * (1.0 - others) + (1.0 - chance) * others
    return FittedThresholds(
        thresholds=thresholds,
        excess=excess if excess > _ROUNDING else 0.0,
        enlargement=enlargement,
        drawn=float(rows[(chance > 0) & (chance < 1)].sum()),
        otherwise=float((rows * otherwise).sum()) if thresholds.clients else 0.0,
    )


def _with_fewer_bins(parts: Sequence[ScoreHistogram]) -> list[ScoreHistogram]:
    """Return the histograms with as many bins as can be held of so many clients."""
    cells, labels, bins = parts[0].shape
    while len(parts) * cells * labels * bins > _MOST_NUMBERS:
        bins //= 2
    return [part.coarse(bins) for part in parts]


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """The rows of clients as a programme.

    Attributes
    ----------
    rows
        By client, cell and label, (V, K, C, 2): as they were counted, and where clients have
        thresholds of their own, as `_shrunk` expects others like them.
    thresholds
        In the order of their distance from 0, (T,).
    block
        The block of each client's cells; −1 where the usual threshold stays, (K, C).
    programme
        Its entries are those of `rows`, raveled.
    """

    rows: Floats
    thresholds: Floats
    block: NDArray[np.intp]
    programme: Programme

    @classmethod
    def of(
        cls, parts: Sequence[ScoreHistogram], constraints: Constraints, demand: Demand
    ) -> _Counts:
        """Arrange what clients have counted, as the demand has it."""
        nearest = np.argsort(np.abs(parts[0].thresholds), kind="stable")
        selected = np.array([[part.selected[:, :, nearest] for part in parts]], dtype=np.float64)
        rows = np.array([[part.rows for part in parts]], dtype=np.float64)
        block = _blocks(rows[0].sum(axis=2), constraints, demand)
        if demand.reads_client and demand.shrinkage:
            expected = _shrunk(selected[0], rows[0], demand.shrinkage)
            selected, rows = np.stack([selected[0], expected[0]]), np.stack([rows[0], expected[1]])
        value = np.array([-demand.costs[0], demand.costs[1]]) / rows[0].sum()
        if demand.maximise == "balanced_accuracy":
            value = np.array([-0.5, 0.5]) / np.maximum(rows[0].sum(axis=(0, 1)), 1.0)
        worth = np.zeros_like(selected)
        worth[-1] = value[:, None] * selected[-1]
        entries = np.tile(np.repeat(block.ravel(), 2), len(rows))
        blocks = [np.flatnonzero(entries == number) for number in range(block.max() + 1)]
        owners = [int(part[0]) // (2 * block.shape[1]) for part in blocks]
        programme = Programme(
            selected=selected.reshape(-1, len(nearest)),
            worth=worth.reshape(-1, len(nearest)),
            blocks=blocks,
            owners=owners if demand.reads_client else [-1] * len(blocks),
        )
        return cls(rows, parts[0].thresholds[nearest], block, programme)


def _blocks(rows: Floats, constraints: Constraints, demand: Demand) -> NDArray[np.intp]:
    """Return the block of each client's cells, with so many rows; −1 for none."""
    kind, there = np.zeros(rows.shape[1], dtype=np.intp), rows > 0
    if demand.reads_group:
        members = np.concatenate([grouping.membership for grouping in constraints.groupings])
        kind = np.unique(members, axis=1, return_inverse=True)[1].ravel()
        there &= members.any(axis=0)
    owner = np.arange(len(rows))[:, None] * demand.reads_client
    block = np.full(rows.shape, -1, dtype=np.intp)
    block[there] = np.unique((owner * len(kind) + kind)[there], return_inverse=True)[1]
    return block


def _shrunk(selected: Floats, rows: Floats, strength: float) -> tuple[Floats, Floats]:
    """Return what is expected of other rows of the same clients: selected, and how many there are.

    To each cell of a client rows are added, and all are scaled back to their number: rows with the
    scores of everyone's rows of the cell and label, and with the client's own share of labels
    (shrunk likewise), in which clients differ more than in scores. The more alike the clients, the
    more rows: `strength` times `_alike`.
    """
    pooled, own = rows.sum(axis=0), rows.sum(axis=2)[:, :, None]
    curve = selected.sum(axis=0) / np.maximum(pooled, 1.0)[:, :, None]
    of_label = pooled / np.maximum(pooled.sum(axis=1, keepdims=True), 1.0)
    more = strength * _alike(rows)[:, None]
    whole = np.maximum(own + more, _ROUNDING)  # 0 of a cell with one label that a client lacks
    added = more * (rows + more * of_label) / whole
    back = own / whole
    return back[..., None] * (selected + added[..., None] * curve), back * (rows + added)


def _alike(rows: Floats) -> Floats:
    """Return how many rows of a cell say as much of a client as that it is one of them, (C,).

    A client's share of favourable labels has the variance q(1 − q)/n within and τ² between
    clients: q(1 − q)/τ² rows, with τ² by the method of moments.
    """
    own = rows.sum(axis=2)
    total, clients = own.sum(axis=0), (own > 0).sum(axis=0)
    q = rows[:, :, 1].sum(axis=0) / np.maximum(total, 1.0)
    within = q * (1.0 - q)
    spread = (own * (rows[:, :, 1] / np.maximum(own, 1.0) - q) ** 2).sum(axis=0)
    weight = total - (own**2).sum(axis=0) / np.maximum(total, 1.0)
    between = np.maximum(spread - (clients - 1) * within, 0.0) / np.maximum(weight, 1.0)
    return np.asarray(within / np.maximum(between, within / _MOST_ALIKE + 1e-12))


def _solved(counts: _Counts, constraints: Constraints, demand: Demand) -> tuple[Solution, float]:
    """Return the best thresholds, and by how much the bounds had to be enlarged for them."""
    programme, start, enlargement = counts.programme, None, 0.0
    bounds = _bounds(counts, constraints, demand, versions=len(counts.rows))
    if demand.levels_up:
        start = programme.optimum(bounds, np.ones(len(bounds.lowest)), sign=-1)
        enlargement = start.extra if start.extra > _ROUNDING else 0.0
    if enlargement and not demand.relax:
        raise ConfigError(
            "output: no thresholds meet all bounds; they can be met if each is enlarged by "
            f"{enlargement:.4f}: relax = true (--relax) does so"
        )
    required = bounds = bounds.raised(np.array(-enlargement))
    if demand.maximise == "worst_client_accuracy":
        clients = _client_accuracies(counts, 0.0)
        both = _joined([bounds, clients])
        slack = np.repeat([0.0, -1.0], [len(bounds.lowest), len(clients.lowest)])
        start = programme.optimum(both, slack, start=start)
        required = _joined([bounds, clients.raised(np.array(max(0.0, start.extra - _AS_GOOD)))])
    solution = programme.optimum(required, start=start)
    if not demand.randomise:
        solution = programme.rounded(required, solution)
    return solution, enlargement


# ------------------------------------------------------------------ bounds


def _bounds(counts: _Counts, constraints: Constraints, demand: Demand, *, versions: int) -> Bounds:
    """Return what is asked for as bounds on the selected rows, gaps of the first versions."""
    clients = range(counts.rows.shape[1])
    parts = []
    for version in range(versions):
        parts.append(_gaps(counts, constraints, demand.tolerance, version))
        if (local := demand.local_tolerance) is not None:
            parts += [_gaps(counts, constraints, local, version, client) for client in clients]
    if demand.least_client_accuracy is not None:
        parts.append(_client_accuracies(counts, demand.least_client_accuracy))
    pooled = counts.rows[0].sum(axis=0)
    for least, labels in (
        (demand.least_selection_rate, [1.0, 1.0]),
        (demand.least_true_positive_rate, [0.0, 1.0]),
    ):
        groups = [group for grouping in constraints.groupings for group in grouping.membership]
        tables = [np.outer(group, labels) for group in groups]
        tables = [table / (table * pooled).sum() for table in tables if (table * pooled).any()]
        if least is not None:
            parts.append(_linear(counts, tables, [least] * len(tables)))
    return _joined(parts)


def _gaps(
    counts: _Counts,
    constraints: Constraints,
    tolerance: float,
    version: int,
    client: int | None = None,
) -> Bounds:
    """Bound the gaps F_e − F_{e,g} of everyone or of one client, from both sides."""
    every = counts.rows[version]
    rows = every.sum(axis=0) if client is None else every[client]
    weight, offset = constraints.selected_weights(rows)
    moved = np.flatnonzero((weight * rows).any(axis=(1, 2)))  # not of groups without rows, or all
    tables = [sign * weight[gap] for gap in moved for sign in (1.0, -1.0)]
    lowest = [-tolerance - sign * offset[gap] for gap in moved for sign in (1.0, -1.0)]
    return _linear(counts, tables, lowest, [client] * len(tables), version)


def _client_accuracies(counts: _Counts, least: float) -> Bounds:
    """Bound the accuracy of every client with rows: (Σ n_0 − s_0 + s_1) / n ≥ least."""
    there = [client for client, rows in enumerate(counts.rows[0]) if rows.any()]
    tables, lowest = [], []
    for client in there:
        rows = counts.rows[0, client]
        tables.append(np.tile([-1.0, 1.0], (len(rows), 1)) / rows.sum())
        lowest.append(least - float(rows[:, 0].sum() / rows.sum()))
    return _linear(counts, tables, lowest, there)


def _linear(
    counts: _Counts,
    tables: Sequence[Floats],
    lowest: Sequence[float],
    clients: Sequence[int | None] | None = None,
    version: int = 0,
) -> Bounds:
    """Bound Σ table · selected rows, of one client or of everyone, from below."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to load, rarely needed

    rows = counts.rows
    entries = np.zeros((len(tables), *rows.shape[:2], rows[0, 0].size))
    weight = np.ones(len(tables))
    for i, (table, client) in enumerate(zip(tables, clients or [None] * len(tables), strict=True)):
        entries[i, version, slice(None) if client is None else client] = table.ravel()
        if client is not None:
            weight[i] = rows[version, client].sum() / rows[version].sum()
    matrix = entries.reshape(len(tables), rows.size)
    # Cells that keep the usual threshold are selected whatever the blocks do.
    kept = np.tile(np.repeat(counts.block.ravel() < 0, 2), len(rows))
    given = np.where(kept, counts.programme.selected[:, 0], 0.0)
    return Bounds(csr_array(matrix), np.array(lowest) - matrix @ given, weight)


def _joined(parts: Sequence[Bounds]) -> Bounds:
    from scipy.sparse import vstack  # noqa: PLC0415 - slow to load, rarely needed

    matrix = vstack([part.matrix for part in parts], format="csr")
    lowest = np.concatenate([part.lowest for part in parts])
    return Bounds(matrix, lowest, np.concatenate([part.weight for part in parts]))


# ------------------------------------------------------------------ the rule


def _rules(
    counts: _Counts, solution: Solution, usual: Thresholds, *, by_group: bool
) -> list[Thresholds]:
    """Return each client's rule; what has no block is decided as `usual` does."""
    used = [solution.of_block(block) for block in range(len(counts.programme.blocks))]
    width = max(usual.values.shape[1], *(len(places) for places, _ in used))
    kept = np.zeros((2, len(usual.values), width))
    kept[:, :, : usual.values.shape[1]] = usual.values, usual.probabilities
    rules = []
    for blocks in counts.block if by_group else counts.block.max(axis=1, keepdims=True):
        table = np.broadcast_to(kept, (2, len(blocks), width)).copy()
        for row, block in enumerate(blocks.tolist()):
            if block >= 0:
                places, shares = used[block]
                table[:, row] = 0.0
                table[:, row, : len(places)] = counts.thresholds[places], shares
        rules.append(Thresholds(*table))
    return rules
