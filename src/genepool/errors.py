"""The one error that a user can mend."""


class UserError(ValueError):
    """Says in one line what is wrong and what to do next. The command line prints it and exits with code 2."""


class EpisodeFailed(Exception):
    """An environment raised. Says which of the episodes that are played side by side; the cause is chained to it."""

    def __init__(self, episode: int):
        super().__init__(episode)
        self.episode = episode
