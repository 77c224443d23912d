"""What a rule of thresholds decides, from counts of scores: no row is needed.

A rule that was fitted to score histograms has its thresholds on the edges of their bins. So the
rows it selects among those of any other histogram on the same grid are known exactly.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mfairfl.data import Attribute
from mfairfl.errors import DataError
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.thresholds import Thresholds


def tally_under(
    rule: Thresholds, histograms: Mapping[str, ScoreHistogram], attributes: Sequence[Attribute]
) -> Tally:
    """Return the counts of a rule's decisions; expected ones if some are drawn.

    Parameters
    ----------
    rule
        Its thresholds must be edges of the histograms' bins, −∞ or +∞.
    histograms
        Each client's rows.
    attributes
        The sensitive attributes, whose cells the histograms are over.

    Examples
    --------
    >>> east = ScoreHistogram.from_logits([-3.0, 0.5, 2.5], [0, 0, 0], [0, 0, 1], size=1, bins=4)
    >>> tally_under(Thresholds([[0.0]], [[1.0]]), {"east": east}, []).counts.tolist()
    [[[[1, 1], [0, 1]]]]
    >>> tally_under(Thresholds([[0.0, 4.0]], [[0.5, 0.5]]), {"east": east}, []).counts.tolist()
    [[[[1.5, 0.5], [0.5, 0.5]]]]
    """
    names, counts = sorted(histograms), []
    for name in names:
        histogram = histograms[name]
        cells, labels, bins = histogram.shape
        own = rule.of(name)
        if not np.isin(own.values, histogram.thresholds).all():
            raise DataError(f"a threshold is no edge of the {bins} bins of client '{name}'")
        stratum, place = np.divmod(histogram.places, bins)
        chance = own.bin_chances(histogram)[stratum // labels, place]
        selected = np.bincount(stratum, histogram.numbers * chance, cells * labels)
        positives = np.minimum(selected.reshape(cells, labels), histogram.rows)
        counts.append(np.stack([histogram.rows - positives, positives], axis=-1))
    expected = np.stack(counts)
    whole = np.rint(expected)
    exact = whole.astype(np.int64) if np.array_equal(whole, expected) else expected
    return Tally(exact, tuple(names), tuple(attributes))
