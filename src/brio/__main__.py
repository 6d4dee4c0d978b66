"""``python -m brio`` is the command line."""

from .cli import main

main()
