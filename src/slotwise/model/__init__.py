"""Nouns: frozen data, importing nothing of ours."""
