"""The two values of a label, however a file spells them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from mfairfl.data.columns import Column
from mfairfl.data.task import Task
from mfairfl.errors import DataError

ORDERED_LABELS = (["0", "1"], ["-1", "1"], ["False", "True"], ["false", "true"])
"""Labels whose second value is the favourable one, whatever they are about."""

_TRUE = frozenset({"true", "yes", "y", "t", "1"})
_FALSE = frozenset({"false", "no", "n", "f", "0"})


def spelling(text: str) -> str:
    """Return what a label says, whatever its case: true, True, yes and 1 are one answer.

    Examples
    --------
    >>> spelling("Yes"), spelling("1"), spelling(">50K")
    ('true', 'true', '>50k')
    """
    plain = text.casefold()
    return "true" if plain in _TRUE else "false" if plain in _FALSE else plain


def label_codes(found: Iterable[str], task: Task) -> dict[str, int]:
    """Return 1 for every text that is the favourable label and 0 for every other that is known.

    Texts are compared as they are. Where that does not make two values of them, spellings of one
    answer are taken together: true, True, 1 and yes are told apart only where they differ. Texts
    that are neither value have no code.

    Examples
    --------
    >>> task = Task(label="hired", favourable="true", sensitive=("sex",))
    >>> label_codes(["1", "False", "True", "no"], task)
    {'1': 1, 'False': 0, 'True': 1, 'no': 0}
    >>> label_codes(["1", "yes"], task.model_copy(update={"favourable": "yes"}))
    {'1': 0, 'yes': 1}
    """
    texts = sorted(set(found))
    exact = _codes({text: text for text in texts}, task.favourable, task.unfavourable, task)
    folded = {text: spelling(text) for text in texts}
    other = None if task.unfavourable is None else spelling(task.unfavourable)
    if len(exact) == len(texts) or other == spelling(task.favourable):
        return exact
    alike = _codes(folded, spelling(task.favourable), other, task)
    return alike if len(alike) == len(texts) else exact


def _codes(
    said: dict[str, str], favourable: str, unfavourable: str | None, task: Task
) -> dict[str, int]:
    """Code each text by what it says, as long as there are two values in all."""
    others = {what for what in said.values() if what != favourable}
    if favourable not in said.values() and unfavourable is None:
        return {}
    if task.others_unfavourable:
        known = others
    elif unfavourable is not None:
        known = others & {unfavourable}
    else:
        known = others if len(others) == 1 else set()
    return {
        text: int(what == favourable)
        for text, what in said.items()
        if what == favourable or what in known
    }


def coded_labels(
    column: Column, task: Task
) -> tuple[npt.NDArray[np.int8], Task, list[str], list[str]]:
    """Code the label, 1 = favourable, and fill in the unfavourable value.

    Returns
    -------
    y, task, notes, respelt
        `respelt` says which values were taken for which.
    """
    where = f"{column.table}: label column '{column.name}'"
    found = list(column.levels)
    codes = label_codes(found, task)
    if task.unfavourable is None and len(found) == 1:
        raise DataError(f"{where} holds only '{found[0]}': a model needs rows with both values")
    if len(codes) < len(found):
        _refuse_labels(column, task, codes)
    if task.unfavourable is None:
        other = min((text for text in found if not codes[text]), key=lambda t: -column.levels[t])
        other = f"not {task.favourable}" if task.others_unfavourable else other
        task = task.model_copy(update={"unfavourable": other})
    notes, respelt = [], []
    if len(found) == 1:
        notes.append(f"{where} holds only {listed(found)}")
    for code, value in ((1, task.favourable), (0, task.unfavourable)):
        alike = [text for text in found if codes[text] == code and text != value]
        if alike and (code or not task.others_unfavourable):
            respelt.append(f"{where}: {listed(alike)} means '{value}' (case and spelling aside)")
        elif len(alike) > 1:
            respelt.append(f"{where}: {listed(alike)} all count as unfavourable")
    # Every row has a label here; `get` is for the text of a missing one, which no row holds.
    y = column.each(lambda text: codes.get(text, -1), np.int8)
    return y, task, notes, respelt


def _refuse_labels(column: Column, task: Task, codes: Mapping[str, int]) -> NoReturn:
    """Refuse a label with values that are neither favourable nor unfavourable."""
    where = f"{column.table}: label column '{column.name}'"
    found = list(column.levels)
    if task.unfavourable is not None:
        strange = next(text for text in found if text not in codes)
        position = int(column.each(strange.__eq__, np.bool_).argmax())
        raise DataError(
            f"{column.place(position)}: label '{strange}' is neither favourable "
            f"('{task.favourable}') nor unfavourable ('{task.unfavourable}'): correct it"
        )
    if spelling(task.favourable) not in map(spelling, found):
        raise DataError(
            f"{where} never holds the favourable value '{task.favourable}': "
            f"set favourable to one of {listed(found)}"
        )
    raise DataError(
        f"{where} has {len(found)} distinct values ({listed(found)}): choose a column with "
        "exactly two, or set others_unfavourable (--others-unfavourable) to count every value but "
        f"'{task.favourable}' as unfavourable"
    )


def listed(values: Sequence[str]) -> str:
    """Quote the first few values.

    Examples
    --------
    >>> listed(["no", "yes"])
    "'no', 'yes'"
    """
    return ", ".join(f"'{value}'" for value in values[:5]) + ", ..." * (len(values) > 5)
