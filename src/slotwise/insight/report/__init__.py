"""Reports of runs: tables for the terminal, pictures, and one self-contained HTML page."""
