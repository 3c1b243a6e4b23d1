"""report.html: one page with interactive charts, that works without a network."""
