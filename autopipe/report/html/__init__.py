"""Write the report of a run as one HTML file, which needs neither network nor script.

A section is a file with one function, and a line in `SECTIONS` of `page.py`.
"""
