"""The shuffle from map to reduce: partition, combine and sort pairs in bounded memory."""
