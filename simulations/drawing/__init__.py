"""Figures and tables as data, and their faces: SVG and HTML for pages, matplotlib and LaTeX for papers, Markdown."""
