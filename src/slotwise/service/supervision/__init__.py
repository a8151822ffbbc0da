"""Commands that outlive the server: each has a supervisor."""
