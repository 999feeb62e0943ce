"""Metrics of issued credentials, of the inventory, of authorities and of token keys."""
