"""What it gains and costs that tasks wait for the memory of a host."""
