"""The skeleton of a technical documentation, filled from a run where the run knows.

Points of the EU AI Act are named by their numbers alone: what they ask for is in the law.
"""

from __future__ import annotations

from collections.abc import Iterable

from mfairfl.display.numbers import SHARE
from mfairfl.fairness.results import Slice
from mfairfl.report.document import DataTreatment, Document, GroupUse, Provenance
from mfairfl.report.wording import label_of
from mfairfl.text import markdown_escaped, markdown_list

_PROVIDER = "**to be filled in by the provider of the system**"


def ai_act_skeleton(
    report: Document, data: DataTreatment, use: GroupUse, origin: Provenance
) -> str:
    """Return the part of the model card that follows the EU AI Act's points."""
    points = {
        "Annex IV, point 2(b)": (_design(report, origin), "reasons, and what was rejected"),
        "Annex IV, point 2(d)": (_data(data, origin), "origin, scope, labels, rights to the data"),
        "Annex IV, point 2(g)": (_tests(report, origin), "date of the tests, and signature"),
        "Annex IV, point 3": (_accuracy(report), "limits in use, risks, and human oversight"),
        "Article 10(2)(f)": (_biases(report, use), "biases that these groups do not show"),
        "Article 10(2)(g)": (_measures(report, use), "measures outside training"),
        "Article 10(2)(h)": (_gaps(report, data), "gaps that people know of"),
    }  # fmt: skip
    parts = [
        "## EU AI Act",
        "This is a skeleton, not a declaration of conformity. Check the text of the law; this is "
        "not legal advice.",
    ]
    for point, (lines, left) in points.items():
        parts += [
            f"### {point}",
            f"{markdown_list(lines)}\n- {markdown_escaped(left)}: {_PROVIDER}",
        ]
    return "\n\n".join(parts)


def _design(report: Document, origin: Provenance) -> list[str]:
    settings, names = origin.settings, ("strategy.", "model.", "output.", "fairness.")
    chosen = [
        f"{key} = {value}"
        for key, value in settings.items()
        if key.startswith(names) and value is not None
    ]
    return [report.headline.what, f"Settings: {', '.join(chosen)}.", report.headline.cost]


def _data(data: DataTreatment, origin: Provenance) -> list[str]:
    facts = origin.data
    return [
        f"{facts.get('name')}: {data.rows:,} rows of {len(data.clients)} clients, SHA-256 "
        f"{facts.get('sha256')}.",
        *_all_lines("Left out", data.dropped),
        *_all_lines("Filled in", data.filled),
        *_all_lines("Made one", data.merged),
    ]


def _all_lines(what: str, lines: Iterable[str]) -> list[str]:
    return [f"{what}: {line}" for line in lines]


def _tests(report: Document, origin: Provenance) -> list[str]:
    rows = sum(client.rows for client in report.clients)
    names = [label_of(number.name) for number in report.overall]
    return [
        f"Measured on {rows:,} {report.split} rows, which every client keeps apart from those it "
        "trains on."
        if report.split == "test"
        else f"Measured on {rows:,} {report.split} rows: there are none that only measure.",
        f"Measures: {', '.join(names)}; with {100 * report.level:g} % intervals where they have "
        "one.",
        report.headline.verdict,
        *(f"SHA-256 of {name}: {digest}" for name, digest in origin.files.items()),
    ]


def _accuracy(report: Document) -> list[str]:
    overall = [number for number in report.overall if number.name == "accuracy"]
    return [
        *(f"Accuracy: {SHARE.one(x.value)}." for x in overall if x.value is not None),
        *(
            f"Accuracy by {section.attribute}: {', '.join(map(_accuracy_of, section.groups))}."
            for section in report.sections
        ),
        f"Accuracy by client: {', '.join(map(_accuracy_of, report.clients))}.",
    ]


def _accuracy_of(part: Slice) -> str:
    value = part.get("accuracy").value
    written = "undefined" if value is None else SHARE.one(value)
    return f"{part.name} {written} ({part.rows:,} rows)"


def _biases(report: Document, use: GroupUse) -> list[str]:
    judged = [judgement.sentence for judgement in report.headline.judgements]
    others = [
        f"{section.attribute}: {label_of(measure.name)} {measure.value:.4f}"
        for section in report.sections
        for measure in section.measures
        if measure.value is not None and measure.name.endswith("_violation")
    ]
    return [*judged, *others, use.sentence]


def _measures(report: Document, use: GroupUse) -> list[str]:
    return [report.headline.what, report.headline.cost, *use.details]


def _gaps(report: Document, data: DataTreatment) -> list[str]:
    undefined = [
        f"{section.attribute}: {label_of(measure.name)} is undefined, since {measure.undefined}"
        for section in report.sections
        for measure in section.measures
        if measure.value is None and measure.undefined
    ]
    lines = [*report.headline.warnings, *data.notes, *undefined]
    return list(dict.fromkeys(lines))
