"""How long it will take."""
