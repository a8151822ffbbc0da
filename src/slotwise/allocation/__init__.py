"""How many slots each job gets: allocators, packing, planning, lower bounds."""
