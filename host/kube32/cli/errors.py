"""How a verb of kube32-cli fails: one line for the user and an exit code."""


class CliError(Exception):
    """`code` 1: the cluster refused; 2: the call, a file or the connection is wrong."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code
