"""Reports of runs: tables for the terminal, pictures, and one self-contained HTML page."""

from __future__ import annotations

from slotwise.insight.report.page import write_pictures, write_report
from slotwise.insight.report.reported import ReportedRun
from slotwise.insight.report.tables import comparison_table, jobs_table

__all__ = ["ReportedRun", "comparison_table", "jobs_table", "write_pictures", "write_report"]
