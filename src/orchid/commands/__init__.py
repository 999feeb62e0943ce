"""What a person types: one module per command, each with `configure(parser)` and `run(chosen)`."""
