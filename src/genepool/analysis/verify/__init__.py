"""Published results, and whether ours lie among them."""
