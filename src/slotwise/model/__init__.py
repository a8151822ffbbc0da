"""The data types: frozen values that import nothing else of the package."""
