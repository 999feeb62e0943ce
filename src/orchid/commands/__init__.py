"""The command line: one module per command, each with `configure(parser)` and `run(chosen)`."""
