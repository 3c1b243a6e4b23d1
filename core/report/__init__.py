"""Tables, charts and documents for reports, written as Markdown, LaTeX, CSV and HTML.

`tables` defines a table and writes it as Markdown, LaTeX and CSV; `charts` draws inline SVG; `html`
renders pages and their elements; `document` combines them.
"""
