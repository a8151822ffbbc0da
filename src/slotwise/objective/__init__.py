"""Costs of jobs: penalties, and their sum or maximum."""
