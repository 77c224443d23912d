"""Charts as inline SVG: small, without scripts, legible in greyscale and on a phone.

Every chart is drawn 340 units wide with text of 12 units, so that it fills a phone's width at
about one pixel a unit. Meaning never rests on colour alone: markers, dashes and labels repeat it.
"""

from mfairfl.report.charts.intervals import IntervalRow, interval_chart
from mfairfl.report.charts.lines import Series, line_chart
from mfairfl.report.charts.marks import Guide, chart_style
from mfairfl.report.charts.plane import PlanePoint, plane_chart
from mfairfl.report.charts.strip import strip_chart

__all__ = [
    "Guide",
    "IntervalRow",
    "PlanePoint",
    "Series",
    "chart_style",
    "interval_chart",
    "line_chart",
    "plane_chart",
    "strip_chart",
]
