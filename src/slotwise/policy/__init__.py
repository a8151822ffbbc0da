"""What is decided: how many slots each job gets, and which task goes where."""
