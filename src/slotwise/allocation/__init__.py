"""How many slots: allocators, packing, planning, bounds."""
