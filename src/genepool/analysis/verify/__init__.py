"""Here published results are read and our runs are judged by them; the entrance is `band.find_band`."""
