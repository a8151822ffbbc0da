"""Pickles for other processes, which cannot import what is in `__main__`: code is sent, too."""
