"""Here children of crossovers and mutations are compared with their parents; the entrance is `study.run_study`."""
