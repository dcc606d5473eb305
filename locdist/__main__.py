"""`python -m locdist` is `locdist`, where the command is not on the path."""

from locdist.cli import main

main()
