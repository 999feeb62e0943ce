"""The agent of a host: joins, keeps credentials fresh in files, and reloads services."""
