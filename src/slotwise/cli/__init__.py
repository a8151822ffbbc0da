"""The command line: commands, their options, and how they print and end."""
