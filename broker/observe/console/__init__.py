"""The page at `/`, which shows a node in a browser.

`facts` collects the values, and `selection` and `state` make the JSON of them. `history` keeps the
last five minutes of totals, and `serving` answers browsers. `static` has the files that browsers
load.
"""
