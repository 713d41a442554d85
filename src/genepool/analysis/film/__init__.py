"""Here champions are played and filmed; the entrance is `camera.film_episodes`."""
