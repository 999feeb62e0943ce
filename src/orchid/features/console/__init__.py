"""The console: pages of the API in a browser, with the rights of the user.

A page is a declaration in `pages/`: path, template, what it reads, and its actions. `site.py`
routes requests to them, `api.py` calls the server as the user. `local.py` is the sign-in of
`orchid console`; `http.py` is its listener.
"""
