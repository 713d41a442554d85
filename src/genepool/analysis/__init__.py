"""What the papers' figures and tables need, drawn from run folders."""
