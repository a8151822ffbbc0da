"""Reading splits of input and writing parts of output."""
