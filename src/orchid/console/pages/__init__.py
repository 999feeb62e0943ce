"""The pages, one file per subject."""

from orchid.console.page import Download, Page
from orchid.console.pages import overview, requests

PAGES: tuple[Page | Download, ...] = (*overview.PAGES, *requests.PAGES)
