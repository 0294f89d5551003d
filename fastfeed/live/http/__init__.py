"""Monitoring endpoint: Prometheus metrics, JSON and a page."""
