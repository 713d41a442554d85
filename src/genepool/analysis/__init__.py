"""What the papers' figures and tables need, read from run folders. Each sub-package names its entrance."""
