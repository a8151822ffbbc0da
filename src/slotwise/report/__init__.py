"""Reports of runs: tables for the terminal, pictures, and one self-contained HTML page."""

from slotwise.report.page import write_pictures, write_report
from slotwise.report.reported import ReportedRun
from slotwise.report.tables import comparison_table, jobs_table

__all__ = ["ReportedRun", "comparison_table", "jobs_table", "write_pictures", "write_report"]
