"""Charts as inline SVG: small, without scripts, legible in greyscale and on a phone.

Every chart is drawn 340 units wide with text of 12 units, so that it fills a phone's width at
about one pixel a unit. Meaning never rests on colour alone: markers, dashes and labels repeat it.
"""

from mfairfl.report.charts.curves import Curves, line_chart, strip_chart
from mfairfl.report.charts.drawing import Form, Guide, chart_style, svg_file
from mfairfl.report.charts.points import PlanePoint, interval_chart, plane_chart

__all__ = [
    "Curves",
    "Form",
    "Guide",
    "PlanePoint",
    "chart_style",
    "interval_chart",
    "line_chart",
    "plane_chart",
    "strip_chart",
    "svg_file",
]
