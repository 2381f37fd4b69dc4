"""The exceptions a user may want to catch."""


class GifairError(Exception):
    """Anything this package refuses or gives up on; the message says what and what to do."""


class BadInput(GifairError):
    """The scenario, the data or an argument is wrong. Nothing has been started or lost."""


class Diverged(GifairError):
    """A loss or a model became NaN or infinite during local training."""


class RunFailed(GifairError):
    """The run cannot go on, for a reason outside the simulated world."""
