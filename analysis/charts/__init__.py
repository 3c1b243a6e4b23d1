"""The charts of a report, as PNG and SVG."""
