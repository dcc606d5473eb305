"""The command line: words into calls of `jobs`, results into text or JSON, errors into exit codes.

Everything heavy is imported inside a command: `locdist --help` answers before torch could load.
"""

from locdist.cli.app import main

__all__ = ["main"]
