"""Reading requests of HTTP/1.1: the parser, its rules, and the cache of heads."""
