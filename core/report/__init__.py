"""Elements of reports and their writers: tables, charts, and whole documents as Markdown and HTML.

`tables` has the table and its Markdown, LaTeX and CSV; `charts` draws inline SVG; `html` has the
page's skeleton and its elements; `document` puts them together.
"""
