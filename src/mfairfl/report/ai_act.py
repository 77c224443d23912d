"""The skeleton of a technical documentation, filled from a run where the run knows.

Points of the EU AI Act are named by their numbers alone: what they ask for is in the law.
"""

from __future__ import annotations

from collections.abc import Iterable

from mfairfl.fairness.results import Slice
from mfairfl.report.document import DataTreatment, Document, GroupUse, Provenance
from mfairfl.report.wording import label_of, percent
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
    names = [label_of(one.name) for one in report.overall]
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
    whole = [one for one in report.overall if one.name == "accuracy" and one.value is not None]
    return [
        *(f"Accuracy: {percent(float(one.value or 0))}." for one in whole),
        *(
            f"Accuracy by {section.attribute}: {', '.join(_each(section.groups))}."
            for section in report.sections
        ),
        f"Accuracy by client: {', '.join(_each(report.clients))}.",
    ]


def _each(slices: Iterable[Slice]) -> list[str]:
    found = []
    for one in slices:
        accuracy = one.numbers.get("accuracy")
        known = accuracy is not None and accuracy.value is not None
        value = percent(float(accuracy.value or 0)) if known and accuracy else "undefined"
        found.append(f"{one.name} {value} ({one.rows:,} rows)")
    return found


def _biases(report: Document, use: GroupUse) -> list[str]:
    judged = [one.sentence for one in report.headline.judgements]
    others = [
        f"{section.attribute}: {label_of(one.name)} {one.value:.4f}"
        for section in report.sections
        for one in section.measures
        if one.value is not None and one.name.endswith("_violation")
    ]
    return [*judged, *others, use.sentence]


def _measures(report: Document, use: GroupUse) -> list[str]:
    return [report.headline.what, report.headline.cost, *use.details]


def _gaps(report: Document, data: DataTreatment) -> list[str]:
    undefined = [
        f"{section.attribute}: {label_of(one.name)} is undefined, since {one.undefined}"
        for section in report.sections
        for one in section.measures
        if one.value is None and one.undefined
    ]
    lines = [*report.headline.warnings, *data.notes, *undefined]
    return list(dict.fromkeys(lines))
