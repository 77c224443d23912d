"""The numbers that the mFairFL paper printed, to stand beside ours.

One line per method: its numbers for Adult, COMPAS and Bank, in the order in which they are
printed. "-" is not applicable; "?" is a cell of which it is not certain what it belongs to.
"""

from __future__ import annotations

from itertools import product

from mfairfl.experiments.tables.layout import TableLayout
from mfairfl.experiments.tables.tabulate import Published

__all__ = ["PUBLISHED_TABLES", "published_for"]

_DATA = ("adult", "compas", "bank")
_VIOLATIONS = tuple(
    f"{notion}_violation" for notion in ("demographic_parity", "equalized_odds", "accuracy_parity")
)

# A metric, and 1 or 2 for the attributes S1 or S2 where violations are printed for each.
_Columns = tuple[tuple[str, int], ...]
_CLIENTS: _Columns = (("accuracy", 0), ("client_accuracy_std", 0))
_BY_NOTION: _Columns = (_CLIENTS[0], *((name, 0) for name in _VIOLATIONS), _CLIENTS[1])
_BY_ATTRIBUTE: _Columns = (_CLIENTS[0], *product(_VIOLATIONS, (1, 2)), _CLIENTS[1])

# High heterogeneity.
_TABLE_1 = """
indfair   .768 .083 .071 .077 -     .573 .083 .097 .085 -     .831 .028 .025 .029 -
fedavg-f  .706 .224 .164 .218 .232  .558 .059 .066 .062 .184  .828 .033 .034 .033 .143
fedfb     .779 .014 .007 .011 .058  .557 .023 .019 .021 .033  .837 .014 .016 .009 .067
fpfl      .754 .023 .016 .019 .228  .553 .033 .018 .024 .157  .822 .008 .012 .010 .153
fairfed   .756 .009 .004 .008 .244  .551 .009 .003 .004 .186  .824 .003 .004 .004 .164
fedmgda+  .837 .238 .237 .238 .063  .635 .136 .141 .137 .044  .874 .084 .077 .085 .065
cenfair   .812 .014 .008 .013 -     .616 .014 .008 .011 -     .866 .001 .000 .002 -
mfairfl   .792 .012 .003 .007 .036  .596 .005 .009 .003 .022  .844 .005 .006 .003 .028
"""

# Client fairness, high heterogeneity. mfairfl apparently runs without its group constraint here:
# fedmgda+ has the numbers of Table 1, mfairfl has others.
_TABLE_2 = """
fedavg    .792 .219  .594 .179  .842 .147
qffl      .718 .081  .566 .058  .816 .110
drfl      .762 .084  .598 .031  .864 .090
ditto     .834 .074  .629 .024  .877 .068
fedmgda+  .837 .063  .635 .044  .874 .065
mfairfl   .853 .035  .668 .018  .889 .022
"""

# The order of the projections.
_TABLE_3 = """
mfairfl-rnd  .774 .018 .013 .017 .049  .577 .014 .015 .012 .044  .837 .009 .013 .007 .047
mfairfl-rev  .768 .027 .026 .028 .064  .580 .020 .018 .019 .049  .822 .023 .019 .021 .077
mfairfl      .792 .012 .003 .007 .036  .596 .005 .009 .003 .022  .844 .005 .006 .003 .028
"""

# Low heterogeneity.
_TABLE_S2 = """
indfair   .773 .044 .058 .043 -     .587 .089 .097 .083 -     .844 .016 .014 .017 -
fedavg-f  .739 .124 .088 .132 .218  .576 .057 .066 .063 .192  .847 .012 .016 .015 .129
fedfb     .782 .012 .009 .007 .046  .565 .019 .016 .018 .028  .836 .009 .014 .010 .048
fpfl      .766 .024 .013 .021 .233  .558 .027 .022 .023 .183  .819 .016 .007 .009 .144
fairfed   .767 .010 .003 .007 .239  .564 .007 .006 .005 .194  .843 .004 .003 .003 .151
fedmgda+  .845 .305 .213 .291 .046  .640 .136 .127 .142 .045  .876 .088 .086 .089 .053
cenfair   .812 .014 .008 .013 -     .616 .014 .008 .011 -     .866 .001 .000 .002 -
mfairfl   .798 .008 .002 .012 .029  .605 .008 .006 .009 .022  .853 .003 .002 .004 .026
"""

# Two sensitive attributes, high heterogeneity. The row of fedavg-f is printed with nine cells
# before COMPAS's accuracy, .704 .212 .098 .137 .113 .087 .198 .088 .376, and seven from Bank's
# accuracy on, .816 .022 .034 .033 .036 .036 .118, where eight belong. Accuracies are told by their
# size. Between them COMPAS has its eight; which of Adult's others is one too many and which of
# Bank's violations is missing cannot be told. Bank's last cell also stands last in print.
_TABLE_S3 = """
indfair   .754 .091 .063 .066 .067 .074 .057 -     .545 .076 .071 .088 .065 .079 .067 -     \
.817 .019 .046 .022 .031 .020 .033 -
fedavg-f  .704 ?    ?    ?    ?    ?    ?    ?     .538 .055 .059 .067 .061 .057 .062 .234  \
.816 ?    ?    ?    ?    ?    ?    .118
fedfb     .757 .011 .010 .009 .013 .009 .011 .055  .546 .019 .016 .016 .017 .022 .018 .037  \
.821 .008 .016 .008 .016 .010 .014 .062
fpfl      .742 .026 .028 .019 .016 .021 .027 .437  .534 .036 .028 .023 .022 .030 .027 .244  \
.809 .009 .020 .013 .024 .012 .017 .107
fairfed   .744 .011 .007 .008 .010 .010 .009 .311  .532 .007 .008 .004 .006 .005 .009 .252  \
.804 .004 .013 .007 .009 .005 .009 .135
fedmgda+  .832 .237 .216 .237 .193 .236 .201 .062  .634 .136 .144 .136 .132 .138 .128 .044  \
.861 .089 .135 .081 .129 .088 .133 .066
cenfair   .783 .012 .009 .010 .008 .013 .010 -     .587 .015 .013 .011 .009 .013 .011 -     \
.848 .002 .011 .003 .008 .001 .009 -
mfairfl   .774 .010 .009 .004 .011 .006 .011 .038  .568 .008 .004 .006 .005 .003 .006 .024  \
.832 .003 .007 .004 .010 .005 .008 .026
"""


_TABLES = {
    "table-1": (_TABLE_1, _BY_NOTION),
    "table-2": (_TABLE_2, _CLIENTS),
    "table-3": (_TABLE_3, _BY_NOTION),
    "table-s2": (_TABLE_S2, _BY_NOTION),
    "table-s3": (_TABLE_S3, _BY_ATTRIBUTE),
}
PUBLISHED_TABLES = tuple(_TABLES)


def published_for(table: str, layout: TableLayout) -> Published:
    """Return the numbers of a table of the paper by the names of ours; cenfair is its CenFL.

    The first split of the layout is the paper's.

    Examples
    --------
    >>> layout = TableLayout(
    ...     name="table-1", title="Table 1", strategies=("mfairfl",), data=("adult",),
    ...     notions=("demographic_parity",), splits=("high",), protocols=("10x20",),
    ... )
    >>> published_for("table-1", layout)["adult", "high", "mfairfl", "accuracy", ""]
    0.792
    """
    text, columns = _TABLES[table]
    found = {}
    for line in text.strip().splitlines():
        strategy, *cells = line.split()
        places = product(_DATA, columns)
        for (data, (metric, number)), cell in zip(places, cells, strict=True):
            attributes = ("", *layout.named_attributes(data))
            if cell not in ("-", "?") and number < len(attributes):
                place = (data, layout.splits[0], strategy, metric, attributes[number])
                found[place] = float(cell)
    return found
