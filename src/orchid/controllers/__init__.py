"""Background work beside the server, through the client only."""
