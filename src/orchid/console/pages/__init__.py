"""The pages, one file per subject."""

from orchid.console.page import ConsolePage, Download
from orchid.console.pages import overview, requests

PAGES: tuple[ConsolePage | Download, ...] = (*overview.PAGES, *requests.PAGES)
