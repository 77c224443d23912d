"""What the server of a reported run saw of each client, and what silos withheld."""

from __future__ import annotations

from pydantic import ValidationError

from mfairfl.errors import ConfigError
from mfairfl.report.document import ServerView, Withheld
from mfairfl.report.reported_run import ReportedRun
from mfairfl.runs.manifest import manifest
from mfairfl.runs.record import WithheldCell
from mfairfl.runs.server_view import protocol_of
from mfairfl.strategies import Card, create

_SILOS = "silos"  # the scheme of clients with files of their own


def view_of(run: ReportedRun) -> ServerView:
    """Say what the server saw, as far as method and settings are known."""
    record, card = run.record, _card(run)
    if card is None:
        return ServerView(
            sentence=f"What crossed is not known: the method {record.strategy} is not installed "
            "here."
        )
    if record.config.get("masked"):
        return ServerView(
            sentence="Silos told counts by group as sums under masks, which mfairfl 0.7 had; "
            "updates and losses crossed singly. The report of that version lists all that crossed."
        )
    try:
        terms = protocol_of(record.config, rule=record.served.rule, splits=record.intervals)
    except ValidationError:
        return ServerView(sentence="What crossed is not known: the settings were altered.")
    said = (
        "The rows stayed with the silos. By the protocol of this run each of them sent what is "
        "listed here; its own ledger has every answer that it gave."
    )
    if record.federation.scheme != _SILOS:
        said = (
            "All rows were in one place, where the clients were simulated. Of clients with files "
            "of their own the server would see what is listed here."
        )
    return ServerView(sentence=said, lines=list(manifest(card, terms)))


def _card(run: ReportedRun) -> Card | None:
    """Return the method's card with the hyper-parameters of the run, if they are still known."""
    usual, settings = run.card, run.record.config["strategy"]
    if usual is None:
        return None
    try:
        own = {key: value for key, value in settings.items() if key != "name"}
        return create(run.record.strategy, **own).card
    except ConfigError:
        return usual


def withheld_by_silos(run: ReportedRun) -> list[Withheld]:
    """Return what each silo kept back."""
    return [
        Withheld(
            client=client,
            min_rows=facts.min_rows,
            sets=[_in_words(one) for one in facts.withheld],
            rows={**facts.rows_withheld},
            policy_sha256=facts.policy_sha256,
        )
        for client, facts in sorted(run.record.federation.disclosure.items())
    ]


def _in_words(one: WithheldCell) -> str:
    groups = ", ".join(f"{attribute} = {group}" for attribute, group in one.cell.items())
    label = "favourable" if one.label else "unfavourable"
    return ", ".join(filter(None, [f"{one.split} rows", groups, f"{label} label"]))
