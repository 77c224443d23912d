"""`mfairfl deploy ledger`: what a silo has answered, and refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mfairfl.cli.flags import Json
from mfairfl.cli.show import print_json, print_table, print_text
from mfairfl.errors import ConfigError, unknown

if TYPE_CHECKING:
    from mfairfl.silo.ledger import LedgerLine


def deploy_ledger(
    file: Annotated[Path, typer.Argument(metavar="SILO.toml", help="The silo's own file.")],
    *,
    run: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the requests of this run.")
    ] = None,
    json: Json = False,
) -> None:
    """At a silo: show what it answered the coordinator, and what it refused.

    Every answer has a line in ledger.jsonl in the silo's state folder, with the SHA-256 of the
    line before. If a line was changed, moved or taken out, this says which, and ends with code 2.
    Lines missing at the end are found only by the SHA-256 of the last line: note it elsewhere.

    Examples
    --------
    mfairfl deploy ledger silo.toml
    mfairfl deploy ledger silo.toml --run mfairfl-0c5e1f2a9b8d7c60 --json
    """
    from mfairfl.silo.ledger import Ledger  # noqa: PLC0415 - only when called
    from mfairfl.silo.silo_file import load_silo  # noqa: PLC0415

    ledger = Ledger(load_silo(file).state)
    chain = ledger.read()
    lines = _of_run(chain.lines, run)
    totals = _totals(lines)
    if json:
        about = {"file": str(ledger.path), "head": chain.head, "torn": chain.torn}
        plain = [line.model_dump(mode="json") for line in lines]
        print_json(about | {"totals": totals, "lines": plain})
        return
    if not chain.lines:
        typer.echo(f"{ledger.path}: nothing was answered or refused yet")
        return
    head = ["time (UTC)", "run", "kind", "about", "smallest set", "models", "bytes"]
    print_table(head, map(_row, lines), right=(4, 5, 6), wrap=(3,))
    typer.echo(", ".join(f"{name}: {count:,}" for name, count in totals.items()))
    typer.echo(f"the chain holds, {len(chain.lines):,} lines; SHA-256 of the last: {chain.head}")
    if chain.torn:
        print_text(
            f"note: {chain.torn:,} bytes of a line that was never completed are at the end; its "
            "answer never left, and the next line takes their place"
        )


def _of_run(lines: Sequence[LedgerLine], run: str | None) -> Sequence[LedgerLine]:
    if run is None:
        return lines
    found = [line for line in lines if line.run == run]
    if not found:
        raise ConfigError("--run: " + unknown("run", run, {line.run for line in lines}))
    return found


def _row(line: LedgerLine) -> list[str]:
    smallest = min((one.smallest for one in line.row_sets), default=None)
    return [
        line.time[:19].replace("T", " "),
        line.run,
        line.kind or "?",
        _about(line),
        "" if smallest is None else f"{smallest:,}",
        f"{line.models:,}" if line.models else "",
        f"{line.answer_bytes:,}" if not line.refused else "",
    ]


def _about(line: LedgerLine) -> str:
    """Say what was refused and why, or what the answer is about."""
    parts = [] if line.round is None else [f"round {line.round + 1:,}"]
    parts += [one.what for one in line.row_sets]
    if line.refusal is not None:
        parts = [f"refused: {line.refusal}"]
    if line.torn:
        parts.append(f"(before it a line was torn, {line.torn:,} bytes were dropped)")
    return "; ".join(parts)


def _totals(lines: Sequence[LedgerLine]) -> dict[str, int]:
    """Count what a silo did: a round that was trained twice, after a restart, is one."""
    answered = [line for line in lines if not line.refused]
    return {
        "answers": len(answered),
        "refusals": sum(line.refused for line in lines),
        "runs": len({line.run for line in lines}),
        "models measured": sum(line.models for line in answered if line.kind == "measure"),
        "rounds trained": len({(x.run, x.round) for x in answered if x.kind == "train"}),
    }
