"""Evaluation of certificate requests by policies and signing profiles; pure."""
