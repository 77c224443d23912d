"""Tables of a study: statistics, published numbers, Markdown, CSV and LaTeX."""
