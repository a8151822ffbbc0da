"""Users, tokens and roles, and the guard before the routes."""
