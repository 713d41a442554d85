"""Workers: where candidates are tried."""
