"""The style sheet of the page."""

BEGIN = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="generator" content="slotwise">"""
"""Marks a page as written by slotwise, so that it may be replaced."""

STYLE = """
:root { --ink: #1f2933; --muted: #616e7c; --rule: #e4e7eb; --paper: #f5f7fa; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; }
main { max-width: 1300px; margin: 0 auto; padding: 28px 24px 60px; }
header { margin: 0 4px 22px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 2px; }
p { margin: 0 0 14px; color: var(--muted); max-width: 130ch; }
.facts { font-size: 15px; }
.notice { color: var(--ink); border-left: 4px solid #c1121f; padding: 2px 12px; }
ul { margin: 4px 0 12px; padding-left: 20px; max-width: 130ch; }
li { margin: 0 0 6px; overflow-wrap: anywhere; }
section { background: white; border: 1px solid var(--rule); border-radius: 10px;
  padding: 20px 24px; margin: 0 0 18px; }
.picture, .table { overflow-x: auto; }
.picture.vega-embed { display: block; padding-right: 30px; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { color: var(--muted); font-weight: normal; text-align: left; vertical-align: bottom; }
th, td { padding: 5px 22px 5px 0; border-bottom: 1px solid var(--rule); }
td { overflow-wrap: break-word; max-width: 60ch; }
tbody tr:last-child > * { border-bottom: 0; }
.best { font-weight: bold; }
.number { text-align: right; white-space: nowrap; }
summary { cursor: pointer; padding: 6px 0; }
td summary { padding: 0; }
pre { margin: 6px 0; font-size: 12px; overflow-x: auto; white-space: pre-wrap; }
details .table { margin: 4px 0 14px; }
@media (max-width: 800px) {
  main { padding: 18px 10px 40px; }
  section { padding: 14px 14px; }
  h1 { font-size: 23px; }
  .picture.vega-embed { padding-right: 0; }
  th, td { padding-right: 14px; }
}
@media print { body { background: white; } section { break-inside: avoid; border: 0; } }
"""
