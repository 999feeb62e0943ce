"""Work that happens by itself beside the server, through the client only."""
