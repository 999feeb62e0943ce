"""Judging certificate requests by policy: pure, the same for the controller and for reviews."""
