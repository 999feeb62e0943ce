"""The console of a server. Imported only with --console-listen."""
