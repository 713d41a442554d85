"""From run folders to columns, and statistics of them."""
