"""A model card in Markdown, from the same document as the page.

What a run knows is filled in; what only people know is marked with who has to write it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mfairfl.errors import ConfigError
from mfairfl.fairness.results import Measured, Section, Slice
from mfairfl.report.ai_act import ai_act_skeleton
from mfairfl.report.document import (
    DataTreatment,
    Document,
    GroupUse,
    Provenance,
    ServerView,
    Withheld,
)
from mfairfl.report.markdown import bullets, table
from mfairfl.report.wording import label_of
from mfairfl.text import markdown_escaped, some_of

_RATES = (
    "accuracy",
    "selection_rate",
    "true_positive_rate",
    "false_positive_rate",
    "base_rate",
    "expected_calibration_error",
)
_MANY_SETS = 5  # that a cell names
_USE = (
    ("Purpose and decisions it is for", "whoever puts the model to use"),
    ("Who decides with it, and how a person can object", "whoever puts the model to use"),
    ("Uses that it is not fit for", "whoever puts the model to use"),
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
    parts = [
        f"# Model card: {markdown_escaped(report.headline.title)}",
        f"Written by mfairfl {markdown_escaped(report.mfairfl)} from the files of the run "
        f"{markdown_escaped(origin.run)}. What only people know is marked **to be "
        "filled in**.",
        *_headline(report),
        "## Intended use",
        bullets_to_fill(_USE),
        *_data(data, use, origin.data),
        *_groups(report),
        *_clients(report),
        *_compared(report),
        *_server(server, report.withheld),
        *_limits(report),
        *_reproduce(origin),
        ai_act_skeleton(report, data, use, origin),
    ]
    return "\n\n".join(parts) + "\n"


def bullets_to_fill(lines: Iterable[tuple[str, str]]) -> str:
    """Return a list of what people have to write, and who."""
    return "\n".join(f"- {what}: **to be filled in by {who}**" for what, who in lines)


def _headline(report: Document) -> list[str]:
    first = report.headline
    said = [first.what, first.verdict, first.cost]
    found = ["## Verdict", *map(markdown_escaped, said)]
    if first.warnings:
        found += ["What makes the numbers doubtful:", bullets(first.warnings)]
    return found


def _data(data: DataTreatment, use: GroupUse, facts: Mapping[str, Any]) -> list[str]:
    sizes = ("rows", "train", "validation", "test")
    rows = [
        [
            str(one.get("name")),
            *(f"{one.get(key) or 0:,}" for key in sizes),
            _number(one.get("base_rate")),
        ]
        for one in data.clients
    ]
    done = {
        "Left out": data.dropped,
        "Filled in": data.filled,
        "Made one": data.merged,
        "To know": data.notes,
        "Doubtful": data.warnings,
    }
    lists = [f"{what}:\n\n{bullets(lines)}" for what, lines in done.items() if lines]
    source = "Origin of the rows, and how their labels came about"
    return [
        "## Data",
        f"{markdown_escaped(str(facts.get('name')))}: {data.rows:,} rows, SHA-256 "
        f"{markdown_escaped(str(facts.get('sha256')))}.",
        bullets_to_fill([(source, "whoever collected the data")]),
        table(["client", *sizes, "base rate"], rows, right=1),
        *lists,
        markdown_escaped(use.sentence),
        bullets(use.details),
    ]


def _groups(report: Document) -> list[str]:
    found = [
        "## Groups",
        f"Numbers are of {report.split} rows, in brackets their {100 * report.level:g} % "
        "intervals.",
    ]
    for section in report.sections:
        found += [
            f"### {markdown_escaped(section.attribute)}",
            _slices("group", section.groups, ()),
        ]
        found.append(_measures(section))
    return found


def _slices(what: str, slices: Sequence[Slice], more: Sequence[str]) -> str:
    names = [n for n in (*_RATES, *more) if any(n in one.numbers for one in slices)]
    rows = [
        [one.name, f"{one.rows:,}", *(_cell(one.numbers.get(name)) for name in names)]
        for one in slices
    ]
    return table([what, "rows", *map(label_of, names)], rows, right=1)


def _measures(section: Section) -> str:
    head = ["measure", "value", "interval", "noise floor"]
    rows = [
        [label_of(one.name), _value(one), _interval(one), _number(one.noise_floor)]
        for one in section.measures
    ]
    return table(head, rows, right=1)


def _clients(report: Document) -> list[str]:
    return ["## Clients", _slices("client", report.clients, report.goal)]


def _compared(report: Document) -> list[str]:
    names = list(dict.fromkeys(name for model in report.compared for name in model.numbers))
    rows = [
        [model.name, *(_cell(model.numbers.get(name)) for name in names), model.note]
        for model in report.compared
    ]
    return [
        "## Beside other models",
        table(["model", *map(label_of, names), "note"], rows, right=1),
    ]


def _server(server: ServerView, withheld: Sequence[Withheld]) -> list[str]:
    head = ["what", "seen", "when", "rows", "by", "why"]
    rows = [
        [f"{x.what}: {x.holds}", x.seen, x.when, ", ".join(x.rows), x.by, x.why]
        for x in server.lines
    ]
    found = ["## What the server saw", markdown_escaped(server.sentence)]
    if rows:
        found.append(table(head, rows, right=len(head)))
    if withheld:
        kept = [
            [
                one.client,
                f"{one.min_rows:,}",
                "; ".join(f"{count:,} {split}" for split, count in one.rows.items()) or "-",
                some_of(one.sets, _MANY_SETS) or "none",
                one.policy_sha256,
            ]
            for one in withheld
        ]
        names = ["silo", "floor", "rows withheld", "sets of rows", "SHA-256 of its rules"]
        found += ["### Withheld by silos", table(names, kept, right=len(names))]
    return found


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
        f"{label_of(one.name)} ({section.attribute}) is undefined: {one.undefined}."
        for section in report.sections
        for one in section.measures
        if one.value is None and one.undefined
    ]
    return ["## Limits", bullets([*lines, *undefined])]


def _reproduce(origin: Provenance) -> list[str]:
    settings = [[key, str(value)] for key, value in origin.settings.items() if value is not None]
    versions = [f"{name} {version}" for name, version in origin.versions.items()]
    machine = " ".join(origin.machine.values())
    return [
        "## How to reproduce",
        "Write these settings into a TOML file and give it to mfairfl train; the same data, seed "
        "and versions give the same model.",
        table(["setting", "value"], settings, right=2),
        bullets(
            [
                f"Identity of the run: {origin.identity}",
                f"Versions: {', '.join(versions)}; on {machine}",
                *(f"SHA-256 of {name}: {digest}" for name, digest in origin.files.items()),
            ]
        ),
    ]


def _cell(one: Measured | None) -> str:
    if one is None or one.value is None:
        return "-"
    return f"{_value(one)} ({_interval(one)})" if one.interval else _value(one)


def _value(one: Measured) -> str:
    return "undefined" if one.value is None else _number(one.value)


def _interval(one: Measured) -> str:
    return "-" if one.interval is None else "{:.4f} to {:.4f}".format(*one.interval)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
