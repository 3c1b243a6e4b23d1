"""The tables of a report, as Markdown, CSV and LaTeX, and the papers' own figures next to ours."""
