"""A model card in Markdown, from the same document as the page.

What a run knows is filled in; what only people know is marked with who has to write it. Points of
the EU AI Act are named by their numbers alone: what they ask for is in the law. What stands where
is in `templates/card.md`.
"""

import re
from collections.abc import Sequence

from markupsafe import Markup

from mfairfl.display import DisplayTable
from mfairfl.display.numbers import DECIMAL, SHARE
from mfairfl.display.tables import fill
from mfairfl.errors import ConfigError
from mfairfl.fairness.results import Slice
from mfairfl.report import tables
from mfairfl.report.document import Document
from mfairfl.report.wording import Words, label_of
from mfairfl.text import markdown_list

_CHOSEN = ("strategy.", "model.", "output.", "fairness.")
"""Settings that say how the model was designed."""


def model_card(report: Document) -> str:
    """Return the model card of a run.

    Examples
    --------
    >>> from mfairfl.report import build_report
    >>> print(model_card(build_report(["runs/mfairfl"])))  # doctest: +SKIP
    """
    data, origin = report.data, report.provenance
    if data is None or origin is None:
        raise ConfigError("a model card is made of the report of a run, not of an audit")
    settings = {key: value for key, value in origin.settings.items() if value is not None}
    treated = {"Left out": data.dropped, "Filled in": data.filled, "Made one": data.merged}
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
    card = fill(
        "mfairfl.report",
        "card.md",
        report=report,
        words=Words(report.definitions),
        tables=tables,
        table=lambda table: Markup(table.to_markdown()),  # noqa: S704 - it escapes
        listed=lambda lines: Markup(markdown_list(lines)),  # noqa: S704 - it escapes
        treated=treated,
        treatment=[f"{kind}: {line}" for kind, lines in treated.items() for line in lines],
        settings=DisplayTable.of(["setting", "value"], [[k, str(v)] for k, v in settings.items()]),
        chosen=", ".join(f"{k} = {v}" for k, v in settings.items() if k.startswith(_CHOSEN)),
        versions=f"Versions: {versions}; on {' '.join(origin.machine.values())}",
        hashes=[f"SHA-256 of {name}: {digest}" for name, digest in origin.files.items()],
        gaps=_gaps(report),
        tests=_tests(report),
        accuracies=_accuracies(report),
        biases=_biases(report),
    )
    return re.sub(r"\n{3,}", "\n\n", card).strip() + "\n"


def _gaps(report: Document) -> list[str]:
    """Return what is undefined between groups, and why."""
    return [
        f"{label_of(number.name)} ({section.attribute}) is undefined: {number.undefined}."
        for section in report.sections
        for number in section.measures
        if number.value is None and number.undefined
    ]


def _biases(report: Document) -> list[str]:
    violations = [
        f"{section.attribute}: {label_of(number.name)} {DECIMAL.one(number.value)}"
        for section in report.sections
        for number in section.measures
        if number.value is not None and number.name.endswith("_violation")
    ]
    return [*(judgement.sentence for judgement in report.headline.judgements), *violations]


def _tests(report: Document) -> list[str]:
    measured = f"Measured on {sum(part.rows for part in report.clients):,} {report.split} rows"
    names = ", ".join(label_of(number.name) for number in report.overall)
    return [
        f"{measured}, which every client keeps apart from those it trains on."
        if report.split == "test"
        else f"{measured}: there are none that only measure.",
        f"Measures: {names}; with {100 * report.level:g} % intervals where they have one.",
    ]


def _accuracies(report: Document) -> list[str]:
    def written(parts: Sequence[Slice]) -> str:
        texts = []
        for part in parts:
            value = part.get("accuracy").value
            accuracy = "undefined" if value is None else SHARE.one(value)
            texts.append(f"{part.name} {accuracy} ({part.rows:,} rows)")
        return ", ".join(texts)

    overall = [number.value for number in report.overall if number.name == "accuracy"]
    return [
        *(f"Accuracy: {SHARE.one(value)}." for value in overall if value is not None),
        *(f"Accuracy by {s.attribute}: {written(s.groups)}." for s in report.sections),
        f"Accuracy by client: {written(report.clients)}.",
    ]
