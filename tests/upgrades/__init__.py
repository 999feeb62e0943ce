"""Upgrades: stores that earlier versions wrote, opened and served by this one."""
