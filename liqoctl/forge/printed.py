"""What may reach a terminal. Pure.

Much of what is told others wrote, providers among them: a sequence of theirs could hide what was
said, or pretend that something else was.
"""


def printable(text: str) -> str:
    """Return ``text`` with a space for each character that cannot be printed; lines stay lines."""
    return "\n".join(
        "".join(char if char.isprintable() else " " for char in line) for line in text.split("\n")
    )


def one_line(text: str) -> str:
    """Return ``text`` as ``printable``, in one line."""
    return printable(text).replace("\n", " ")
