"""A model card in Markdown, from the same document as the page.

What a run knows is filled in; what only people know is marked with who has to write it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mfairfl.display import DisplayTable
from mfairfl.errors import ConfigError
from mfairfl.report.ai_act import ai_act_skeleton
from mfairfl.report.document import (
    DataTreatment,
    Document,
    GroupUse,
    Provenance,
    ServerView,
    Withheld,
)
from mfairfl.report.tables import (
    clients_rows_table,
    clients_tables,
    compared_tables,
    groups_tables,
    measures_table,
    server_table,
    withheld_table,
)
from mfairfl.report.wording import Words, label_of
from mfairfl.text import markdown_escaped, markdown_list

_USE = (
    ("Purpose and decisions it is for", "the organisation that uses the model"),
    ("Who decides with it, and how a person can object", "the organisation that uses the model"),
    ("Uses that it is not fit for", "the organisation that uses the model"),
    ("Who is affected, and how a wrong decision harms them", "the data-protection officer"),
    ("Who is responsible, and until when this card holds", "the owner of the model"),
)


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
        _to_fill_in(_USE),
        *_data(data, use, origin.data),
        *_groups(report, words),
        "## Clients",
        clients_tables(report, words)[0].to_markdown(),
        "## Beside other models",
        compared_tables(report, words)[0].to_markdown(),
        *_server(server, report.withheld),
        *_limits(report),
        *_reproduce(origin),
        ai_act_skeleton(report, data, use, origin),
    ]
    return "\n\n".join(parts) + "\n"


def _to_fill_in(lines: Iterable[tuple[str, str]]) -> str:
    """Return a list of what people have to write, and who."""
    return "\n".join(f"- {what}: **to be filled in by {who}**" for what, who in lines)


def _headline(report: Document) -> list[str]:
    head = report.headline
    parts = ["## Verdict", *map(markdown_escaped, (head.what, head.verdict, head.cost))]
    if head.warnings:
        parts += ["What makes the numbers doubtful:", markdown_list(head.warnings)]
    return parts


def _data(data: DataTreatment, use: GroupUse, facts: Mapping[str, Any]) -> list[str]:
    remarks = {
        "Left out": data.dropped,
        "Filled in": data.filled,
        "Made one": data.merged,
        "To know": data.notes,
        "Doubtful": data.warnings,
    }
    source = "Origin of the rows, and how their labels came about"
    return [
        "## Data",
        f"{markdown_escaped(str(facts.get('name')))}: {data.rows:,} rows, SHA-256 "
        f"{markdown_escaped(str(facts.get('sha256')))}.",
        _to_fill_in([(source, "the collector of the data")]),
        clients_rows_table(data).to_markdown(),
        *(f"{what}:\n\n{markdown_list(lines)}" for what, lines in remarks.items() if lines),
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
            groups_tables(section, words)[0].to_markdown(),
            measures_table(section, words, report.goal).to_markdown(),
        ]
    return parts


def _server(server: ServerView, withheld: Sequence[Withheld]) -> list[str]:
    parts = ["## What the server saw", markdown_escaped(server.sentence)]
    if server.lines:
        parts.append(server_table(server).to_markdown())
    if withheld:
        parts += ["### Withheld by silos", withheld_table(withheld).to_markdown()]
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
    undefined = [
        f"{label_of(number.name)} ({section.attribute}) is undefined: {number.undefined}."
        for section in report.sections
        for number in section.measures
        if number.value is None and number.undefined
    ]
    return ["## Limits", markdown_list([*lines, *undefined])]


def _reproduce(origin: Provenance) -> list[str]:
    settings = [[key, str(value)] for key, value in origin.settings.items() if value is not None]
    versions = [f"{name} {version}" for name, version in origin.versions.items()]
    machine = " ".join(origin.machine.values())
    return [
        "## How to reproduce",
        "Write these settings into a TOML file and give it to mfairfl train; the same data, seed "
        "and versions give the same model.",
        DisplayTable.of(["setting", "value"], settings).to_markdown(),
        markdown_list(
            [
                f"Identity of the run: {origin.identity}",
                f"Versions: {', '.join(versions)}; on {machine}",
                *(f"SHA-256 of {name}: {digest}" for name, digest in origin.files.items()),
            ]
        ),
    ]
