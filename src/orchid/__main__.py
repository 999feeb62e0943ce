"""Run the command as `python -m orchid`."""

from orchid.cli import main

raise SystemExit(main())
