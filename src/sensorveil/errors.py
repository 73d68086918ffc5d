"""The one error that a user's input may cause."""


class Refusal(ValueError):
    """Input that cannot be used; the message is one line: what is wrong, where, and what to do.

    The command line prints that line and exits with code 2. Everything else that is raised is a
    fault of the program and keeps its traceback.

    >>> raise Refusal("strength 'gendr' is unknown; known: keep, gender")
    Traceback (most recent call last):
    sensorveil.errors.Refusal: strength 'gendr' is unknown; known: keep, gender
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def refuse_unknown(what: str, given: str, known: list[str] | tuple[str, ...]) -> Refusal:
    """The refusal for a name that is not among the known ones.

    >>> print(refuse_unknown("attribute", "gendr", ["gender", "activity"]))
    attribute 'gendr' is unknown; known: activity, gender
    """
    return Refusal(f"{what} '{given}' is unknown; known: {', '.join(sorted(known)) or 'none'}")
