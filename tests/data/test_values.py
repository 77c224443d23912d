"""Numbers and dates in text: what a cell is worth, and how a column's notation is found."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.data import ColumnRules
from mfairfl.data.values import parse, recognise
from mfairfl.errors import ConfigError

WORTH = {
    ("50,000.00", ".", ","): 50000.0,
    ("1.200,5", ",", "."): 1200.5,
    ("1 200,5", ",", " "): 1200.5,
    ("1\u00a0200,5 €", ",", " "): 1200.5,
    ("3'000'000.25", ".", "'"): 3000000.25,
    ("$1,200", ".", ","): 1200.0,
    ("-$1,200", ".", ","): -1200.0,
    ("12 %", None, None): 12.0,
    ("12%", None, None): 12.0,
    ("£7.50", None, None): 7.5,
    ("1e3", None, None): 1000.0,
    ("True", None, None): 1.0,
}


@pytest.mark.parametrize(("text", "decimal", "thousands"), WORTH)
def test_a_cell_is_worth_what_a_reader_takes_it_for(text, decimal, thousands):
    rules = ColumnRules(decimal=decimal, thousands=thousands)
    assert parse([text], rules)[0] == WORTH[text, decimal, thousands]


@pytest.mark.parametrize("text", ["12,34,567", "1,2345", "1.2.3", "$", "12 kg", "--3", "1,20"])
def test_a_cell_that_is_no_number_is_none(text):
    assert parse([text], ColumnRules(thousands=","))[0] == math.inf


@pytest.mark.parametrize("text", ["?", "NA", "N/A", "nan", "null", "None"])
def test_words_for_no_value_are_missing_in_a_column_of_numbers(text):
    assert math.isnan(parse([text], ColumnRules())[0])


@given(st.integers(-(10**12), 10**12), st.sampled_from([(".", ","), (",", "."), (",", " ")]))
def test_thousands_written_by_python_are_read_back(number, marks):
    decimal, thousands = marks
    text = f"{number:,}".replace(",", thousands)
    assert parse([text], ColumnRules(decimal=decimal, thousands=thousands))[0] == number


@given(st.dates(date(1700, 1, 1), date(2200, 1, 1)))
@pytest.mark.parametrize("written", ["iso", "%d.%m.%Y", "%m/%d/%Y"])
def test_a_date_is_the_days_since_1970(written, day):
    text = day.isoformat() if written == "iso" else day.strftime(written)
    expected = day.toordinal() - date(1970, 1, 1).toordinal()
    assert parse([text], ColumnRules(date=written))[0] == expected


def test_times_are_fractions_of_days_or_hours_since_midnight():
    moment = datetime(2024, 5, 31, 18, 30, tzinfo=UTC)
    days = moment.timestamp() / 86400
    iso = parse(["2024-05-31 18:30", "2024-05-31T20:30+02:00", "?"], ColumnRules(date="iso"))
    assert iso[:2].tolist() == [days, days]
    assert math.isnan(iso[2])
    assert parse(["18:30"], ColumnRules(date="%H:%M"))[0] == 18.5


def found(*texts, **given):
    return recognise(list(texts), np.ones(len(texts), dtype=np.intp), ColumnRules(**given))


PLAIN = tuple(str(i) for i in range(100, 120))


@pytest.mark.parametrize(
    ("texts", "rules"),
    [
        (PLAIN, {}),
        (("50,000.00", "1,200.50"), {"thousands": ","}),
        (("0,5", "1,25"), {"decimal": ","}),
        (("1.200,5", "12.000,75"), {"decimal": ",", "thousands": "."}),
        (("12 %", "3.5 %"), {}),
        (("2024-05-31", "2023-01-02"), {"date": "iso"}),
        (("31.05.2024", "02.01.2023"), {"date": "%d.%m.%Y"}),
        (("05/31/2024", "01/02/2023"), {"date": "%m/%d/%Y"}),
        (("08:15", "23:59"), {"date": "%H:%M"}),
    ],
)
def test_the_notation_is_found(texts, rules):
    recognised = found(*texts)
    assert recognised.rules == ColumnRules(**rules)
    assert not recognised.odd
    assert not recognised.question


@pytest.mark.parametrize("word", ["inf", "unknown", "1e400", "12 kg"])
def test_a_column_that_is_almost_a_number_is_one(word):
    recognised = found(*PLAIN, word)
    assert recognised.odd == {word: 1}
    assert recognised.rules.missing_codes == (word,)


@pytest.mark.parametrize(
    "texts",
    [
        ("red", "green", "1"),
        (*PLAIN, "007"),  # codes with leading zeros
        (*"12345", "A"),  # few values: codes among which a letter is one more
        (*PLAIN, *"abcdefg"),  # a quarter are words
    ],
)
def test_other_columns_are_not_numbers(texts):
    assert found(*texts) is None


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("1,234", "5,678"), "decimal = ','"),
        (("1.234", "950"), "thousands = '.'"),
        (("05/06/2024", "01/02/2023"), "date = '%m/%d/%Y'"),
    ],
)
def test_what_could_mean_two_things_is_asked(texts, words):
    assert words in found(*texts).question


def test_what_is_given_is_not_guessed():
    assert found("1,234", "5,678", decimal=",").rules == ColumnRules(decimal=",")
    assert parse(["1,234"], ColumnRules(decimal=","))[0] == 1.234


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"decimal": ",", "thousands": ","}, "both the decimal mark"),
        ({"thousands": "."}, "set decimal as well"),
        ({"date": "yyyy-mm-dd"}, "'%d.%m.%Y'"),
    ],
)
def test_rules_that_contradict_themselves_are_refused(rules, words):
    with pytest.raises(ConfigError, match=words):
        ColumnRules(**rules)
