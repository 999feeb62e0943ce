"""The API for clients in this process: a transport through the request chain, and the clients."""
