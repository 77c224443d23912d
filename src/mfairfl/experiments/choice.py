"""What `mfairfl choose` was asked for, and what it answers."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from mfairfl.display import DisplayTable, Head
from mfairfl.display.numbers import DECIMAL
from mfairfl.errors import ConfigError
from mfairfl.experiments.candidates import Contender, FoldDifference, FoldNumbers, Pick
from mfairfl.fairness.uncertainty import Interval, Verdict, verdict
from mfairfl.runs.execute import Run
from mfairfl.runs.options import toml_value


class Wanted(NamedTuple):
    """What a person asks for: at most so much violation, or at most so much accuracy lost.

    Examples
    --------
    >>> Wanted.of("dp 0.05", None)
    Wanted(notions=('dp',), at_most=0.05, lose_at_most=None)
    """

    notions: tuple[str, ...]
    at_most: float | None
    lose_at_most: float | None

    @classmethod
    def of(cls, at_most: str | None, lose_at_most: float | None) -> "Wanted":
        """Read the two forms, of which exactly one is given."""
        if (at_most is None) == (lose_at_most is None):
            raise ConfigError("choose: give at_most, such as 'dp 0.05', or lose_at_most = 0.01")
        names, _, number = (at_most or "").strip().rpartition(" ")
        notions = tuple(names.replace(",", " ").split())
        share = toml_value(number) if at_most else lose_at_most
        if not (isinstance(share, int | float) and 0 < share < 1) or (at_most and not notions):
            raise ConfigError(
                f"{at_most or lose_at_most}: write a notion and a number between 0 and 1, such as "
                "'dp 0.05'; of lose_at_most the number alone"
            )
        return cls(notions, None if at_most is None else share, lose_at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenModel:
    """What was chosen, from which candidates, and the finished run.

    Parameters
    ----------
    trials : tuple of FoldNumbers
        All candidates, on held-out rows.
    pick : Pick
        Which of them was picked, and why.
    free : Pick
        What would be picked if decisions might depend on the group.
    beforehand : str
        What was said before training: that there are too few rows; else empty.
    run : Run
        The chosen model, trained on all train rows, with FedAvg as its `baseline`.

    Examples
    --------
    >>> import mfairfl
    >>> choice = mfairfl.choose({"data": {"name": "adult"}}, at_most="dp 0.05")  # doctest: +SKIP
    >>> print(choice)  # doctest: +SKIP
    """

    wanted: Wanted
    folds: int
    trials: tuple[FoldNumbers, ...]
    pick: Pick
    free: Pick
    beforehand: str
    run: Run

    @property
    def baseline(self) -> Run:
        """FedAvg on the same rows: the run itself, if that is what was chosen."""
        return self.run.baseline or self.run

    @property
    def candidate(self) -> Contender:
        """The chosen one."""
        return self.trials[self.pick.chosen].candidate

    @property
    def gain(self) -> str:
        """What the group would have added where it may not be read; else empty."""
        free, chosen = self.trials[self.free.chosen], self.trials[self.pick.chosen]
        if free.candidate.reads_group <= chosen.candidate.reads_group:
            return ""
        gain = FoldDifference.of(free.accuracies, chosen.accuracies)
        return (
            f"If decisions might depend on the group (by = group), {free.candidate} would be "
            f"chosen: held-out accuracy {gain}, violation {free.violation:.4f}."
        )

    @property
    def neighbour(self) -> str:
        """What the next more accurate candidate would violate; empty if there is none."""
        chosen = self.trials[self.pick.chosen]
        others = [
            trial
            for i, trial in enumerate(self.trials)
            if trial.accuracy > chosen.accuracy
            and trial.violation > chosen.violation
            and i not in self.pick.alike
            and trial.candidate.reads_group <= chosen.candidate.reads_group
        ]
        if not others:
            return ""
        least = min(others, key=lambda trial: trial.violation)
        gain = FoldDifference.of(least.accuracies, chosen.accuracies)
        return (
            f"{least.candidate} would be more accurate ({gain}) at a held-out violation of "
            f"{least.violation:.4f} in place of {chosen.violation:.4f}."
        )

    @property
    def _measures(self) -> tuple[str, ...]:
        return ("accuracy", *self.run.record.goal)

    @property
    def verdict(self) -> Verdict | None:
        """Whether the test rows show that the violation is within `at_most`; else None."""
        if self.wanted.at_most is None:
            return None
        table = self.run.record.table(self.run.record.reported)
        ends = [table[name].interval for name in self.run.record.goal]
        each = {verdict(end and Interval(*end), self.wanted.at_most) for end in ends}
        order: tuple[Verdict, ...] = ("not met", "too few rows to tell", "met")
        return next(outcome for outcome in order if outcome in each)

    def table(self) -> DisplayTable:
        """Return all candidates, the most accurate first, each beside the chosen one."""
        chosen, rows = self.trials[self.pick.chosen], []
        for i, trial in sorted(enumerate(self.trials), key=lambda item: -item[1].accuracy):
            beside = FoldDifference.of(trial.accuracies, chosen.accuracies)
            notes = {
                "chosen": trial is chosen,
                "alike": i in self.pick.alike,
                "reads the group": trial.candidate.reads_group,
                "no better than a constant": not trial.useful,
            }
            note = ", ".join(name for name, holds in notes.items() if holds)
            numbers = map(DECIMAL.one, (trial.accuracy, trial.violation))
            rows.append(
                [str(trial.candidate), *numbers, "" if trial is chosen else str(beside), note]
            )
        columns = [
            Head("Contender", numeric=False),
            Head("Accuracy", "held out"),
            Head("Violation", "held out"),
            Head("Accuracy beside the chosen", "95 % interval"),
            Head("", numeric=False),
        ]
        return DisplayTable(columns=columns, rows=rows)

    @property
    def lines(self) -> list[str]:
        """What there is to say below the table."""
        record, lines = self.run.record, [self.pick.reason]
        lines += [line for line in (self.neighbour, self.beforehand, self.gain) if line]
        table, base = (run.record.table(record.reported) for run in (self.run, self.baseline))
        for name in self._measures:
            number, words = table[name], name.replace("_", " ")
            beside = f"; FedAvg {DECIMAL.one(base[name].value)}" * (self.run.baseline is not None)
            lines.append(
                f"{words} on {table.rows:,} {record.reported} rows: {DECIMAL.one(number.value)} "
                f"({DECIMAL.span(number.interval)}){beside}"
            )
        if self.verdict is not None:
            lines.append(f"at most {self.wanted.at_most:g}: {self.verdict}")
        elif (first := base["accuracy"].value) and (last := table["accuracy"].value):
            lines.append(f"lost at most {self.wanted.lose_at_most:g}: {first - last:.4f} is lost")
        lines += [f"worse than under FedAvg: {item}" for item in self.run.worsened or ()]
        return lines

    def __str__(self) -> str:
        return "\n".join([self.table().to_text(), *self.lines])

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers."""

        def measured(run: Run) -> dict[str, Any]:
            table = run.record.table(run.record.reported)
            return {name: table[name].model_dump(mode="json") for name in self._measures}

        return {
            **self.wanted._asdict(),
            "folds": self.folds,
            "chosen": asdict(self.candidate),
            "reason": self.pick.reason,
            "alike": [asdict(self.trials[i].candidate) for i in self.pick.alike],
            "neighbour": self.neighbour,
            "beforehand": self.beforehand,
            "gain": self.gain,
            "candidates": [{**asdict(t), "accuracy": t.accuracy} for t in self.trials],
            "verdict": self.verdict,
            "measured": measured(self.run),
            "baseline": measured(self.baseline),
        }
