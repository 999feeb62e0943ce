"""The metrics of requests, and the page that shows all metrics."""
