"""The figures of the slides on delay scheduling."""
