"""What stops the sandbox: something the machine lacks, or a program that ended badly."""


class MissingError(Exception):
    """The machine lacks something; the message is one sentence: what, and how to get it."""


class ProgramError(Exception):
    """A program ended badly; the message names it and ends with the last lines it wrote."""
