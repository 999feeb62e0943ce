"""The transparency log of issued credentials and of decisions, which anybody can verify.

Start with feature.py.
"""
