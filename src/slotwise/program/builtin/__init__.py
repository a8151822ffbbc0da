"""Programs that are installed, by name; each is imported only when it is asked for."""
