"""Reports and audits as one self-contained HTML file each."""

from mfairfl.report.page.audit import render_audit
from mfairfl.report.page.run import render

__all__ = ["render", "render_audit"]
