"""A model card in Markdown, from the same document as the page.

What a run knows is filled in; what only people know is marked with who has to write it. Points of
the EU AI Act are named by their numbers alone: what they ask for is in the law.
"""

from __future__ import annotations

from typing import Any

from mfairfl.display import DisplayTable
from mfairfl.display.numbers import SHARE
from mfairfl.errors import ConfigError
from mfairfl.fairness.results import Slice
from mfairfl.report import tables
from mfairfl.report.document import DataTreatment, Document, GroupUse, Provenance, ServerView
from mfairfl.report.wording import Words, label_of
from mfairfl.text import markdown_escaped, markdown_list

_USE = {
    "Purpose and decisions it is for": "the organisation that uses the model",
    "Who decides with it, and how a person can object": "the organisation that uses the model",
    "Uses that it is not fit for": "the organisation that uses the model",
    "Who is affected, and how a wrong decision harms them": "the data-protection officer",
    "Who is responsible, and until when this card holds": "the owner of the model",
}


def model_card(report: Document) -> str:
    """Return the model card of a run.

    Examples
    --------
    >>> from mfairfl.report import build_report
    >>> print(model_card(build_report(["runs/mfairfl"])))  # doctest: +SKIP
    """
    data, use, server, origin = report.data, report.group_use, report.server, report.provenance
    if data is None or use is None or server is None or origin is None:
        raise ConfigError("a model card is made of the report of a run, not of an audit")
    words = Words(report.definitions)
    parts = [
        f"# Model card: {markdown_escaped(report.headline.title)}",
        f"Written by mfairfl {markdown_escaped(report.mfairfl)} from the files of the run "
        f"{markdown_escaped(origin.run)}. What only people know is marked **to be "
        "filled in**.",
        *_headline(report),
        "## Intended use",
        "\n".join(_to_fill_in(what, who) for what, who in _USE.items()),
        *_data(data, use, origin),
        *_groups(report, words),
        "## Clients",
        tables.clients_tables(report, words)[0].to_markdown(),
        "## Beside other models",
        tables.compared_tables(report, words)[0].to_markdown(),
        *_server(report, server),
        *_limits(report),
        *_reproduce(origin),
        *_ai_act(report, data, use, origin),
    ]
    return "\n\n".join(parts) + "\n"


def _to_fill_in(what: str, who: str) -> str:
    return f"- {what}: **to be filled in by {who}**"


def _headline(report: Document) -> list[str]:
    head = report.headline
    parts = ["## Verdict", *map(markdown_escaped, (head.what, head.verdict, head.cost))]
    if head.warnings:
        parts += ["What makes the numbers doubtful:", markdown_list(head.warnings)]
    return parts


def _treated(data: DataTreatment) -> dict[str, list[str]]:
    return {"Left out": data.dropped, "Filled in": data.filled, "Made one": data.merged}


def _data(data: DataTreatment, use: GroupUse, origin: Provenance) -> list[str]:
    remarks = {**_treated(data), "To know": data.notes, "Doubtful": data.warnings}
    return [
        "## Data",
        f"{markdown_escaped(str(origin.data.get('name')))}: {data.rows:,} rows, SHA-256 "
        f"{markdown_escaped(str(origin.data.get('sha256')))}.",
        _to_fill_in(
            "Origin of the rows, and how their labels came about", "the collector of the data"
        ),
        tables.clients_rows_table(data).to_markdown(),
        *(f"{kind}:\n\n{markdown_list(lines)}" for kind, lines in remarks.items() if lines),
        markdown_escaped(use.sentence),
        markdown_list(use.details),
    ]


def _groups(report: Document, words: Words) -> list[str]:
    parts = [
        "## Groups",
        f"Numbers are of {report.split} rows, in brackets their {100 * report.level:g} % "
        "intervals.",
    ]
    for section in report.sections:
        parts += [
            f"### {markdown_escaped(section.attribute)}",
            tables.groups_tables(section, words)[0].to_markdown(),
            tables.measures_table(section, words, report.goal).to_markdown(),
        ]
    return parts


def _server(report: Document, server: ServerView) -> list[str]:
    parts = ["## What the server saw", markdown_escaped(server.sentence)]
    if server.lines:
        parts.append(tables.server_table(server).to_markdown())
    if report.withheld:
        parts += ["### Withheld by silos", tables.withheld_table(report.withheld).to_markdown()]
    return parts


def _limits(report: Document) -> list[str]:
    lines = [
        f"The numbers are of {report.split} rows of the same origin as the train rows; other "
        "people, other times and other places may give others.",
        "An interval covers the chance of which rows were measured, not that of training: another "
        "seed gives another model.",
        "A violation near its noise floor cannot be told apart from exact fairness on as many "
        "rows; a group with few rows can hide a large difference.",
        "Rows whose group is not recorded are in no comparison of groups.",
    ]
    lines += [
        f"{name} ({attribute}) is undefined: {why}." for attribute, name, why in _gaps(report)
    ]
    return ["## Limits", markdown_list(lines)]


def _gaps(report: Document) -> list[tuple[str, str, str]]:
    """Return attribute, number and reason of what is undefined between groups."""
    return [
        (section.attribute, label_of(number.name), number.undefined)
        for section in report.sections
        for number in section.measures
        if number.value is None and number.undefined
    ]


def _reproduce(origin: Provenance) -> list[str]:
    settings = [[key, str(value)] for key, value in _settings(origin).items()]
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
    lines = [
        f"Identity of the run: {origin.identity}",
        f"Versions: {versions}; on {' '.join(origin.machine.values())}",
    ]
    return [
        "## How to reproduce",
        "Write these settings into a TOML file and give it to mfairfl train; the same data, seed "
        "and versions give the same model.",
        DisplayTable.of(["setting", "value"], settings).to_markdown(),
        markdown_list([*lines, *_hashes(origin)]),
    ]


def _settings(origin: Provenance) -> dict[str, Any]:
    return {key: value for key, value in origin.settings.items() if value is not None}


def _hashes(origin: Provenance) -> list[str]:
    return [f"SHA-256 of {name}: {digest}" for name, digest in origin.files.items()]


# ------------------------------------------------------------------ the EU AI Act


def _ai_act(report: Document, data: DataTreatment, use: GroupUse, origin: Provenance) -> list[str]:
    """Return the skeleton of a technical documentation, by the Act's points."""
    head = report.headline
    chosen = ("strategy.", "model.", "output.", "fairness.")
    settings = ", ".join(
        f"{key} = {value}" for key, value in _settings(origin).items() if key.startswith(chosen)
    )
    rows = (
        f"{origin.data.get('name')}: {data.rows:,} rows of {len(data.clients)} clients, SHA-256 "
        f"{origin.data.get('sha256')}."
    )
    treated = [f"{kind}: {line}" for kind, lines in _treated(data).items() for line in lines]
    gaps = [
        f"{attribute}: {name} is undefined, since {why}" for attribute, name, why in _gaps(report)
    ]
    points = {
        "Annex IV, point 2(b)": (
            [head.what, f"Settings: {settings}.", head.cost],
            "reasons, and what was rejected",
        ),
        "Annex IV, point 2(d)": ([rows, *treated], "origin, scope, labels, rights to the data"),
        "Annex IV, point 2(g)": (
            [*_tests(report), head.verdict, *_hashes(origin)],
            "date of the tests, and signature",
        ),
        "Annex IV, point 3": (_accuracies(report), "limits in use, risks, and human oversight"),
        "Article 10(2)(f)": (
            [*_biases(report), use.sentence],
            "biases that these groups do not show",
        ),
        "Article 10(2)(g)": ([head.what, head.cost, *use.details], "measures outside training"),
        "Article 10(2)(h)": (
            list(dict.fromkeys([*head.warnings, *data.notes, *gaps])),
            "gaps that people know of",
        ),
    }
    parts = [
        "## EU AI Act",
        "This is a skeleton, not a declaration of conformity. Check the text of the law; this is "
        "not legal advice.",
    ]
    for point, (lines, left) in points.items():
        missing = _to_fill_in(markdown_escaped(left), "the provider of the system")
        parts += [f"### {point}", f"{markdown_list(lines)}\n{missing}"]
    return parts


def _biases(report: Document) -> list[str]:
    violations = [
        f"{section.attribute}: {label_of(number.name)} {number.value:.4f}"
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
    def written(parts: list[Slice]) -> str:
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
