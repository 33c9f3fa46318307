"""Why something that was asked for is refused, as the one who asked is told. Pure."""


class DeniedError(Exception):
    """The request is understood and refused; users see the message, so say what to do."""

    def __init__(self, message: str, *, code: int = 403) -> None:
        super().__init__(message)
        self.code = code
