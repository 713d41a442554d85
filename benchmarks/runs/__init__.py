"""Training runs of a plan, in processes of their own or on a Ray cluster."""
