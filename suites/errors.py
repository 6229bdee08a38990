"""The one exception that means "the person at the keyboard can mend this".

Everything a user can get wrong (a key, a type, a name, a missing file) becomes an `InputError`, raised
where the mistake is known and worded for who must act: what, where, what was found, how to mend it.
The command line prints it as it stands and exits with 2; nothing has been spent by then.
"""


class InputError(Exception):
    """A mistake in what dyno was given.

    Attributes:
        what: what is wrong, naming the value that was found.
        where: the file (and key) that holds it, or None when it came from the command line.
        mend: what would be right, as an instruction; None when `what` already says it.
    """

    def __init__(self, what: str, *, where: str | None = None, mend: str | None = None) -> None:
        self.what = what
        self.where = where
        self.mend = mend
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  → {self.mend}" if self.mend else text
