"""From map to reduce: pairs partitioned, combined, sorted, in bounded memory."""
