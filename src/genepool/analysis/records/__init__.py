"""Here run folders become columns, groups and statistics; the entrance is `reading.read_all`."""
