"""The ends of credentials: what ends each of them, and which paths it then no longer opens."""
