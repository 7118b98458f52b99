"""The page at `/`: a node for people.

`facts` are its values, `selection` and `state` make the JSON of them, `history` keeps the last five
minutes of totals, and `serving` answers browsers. `static` has the files that browsers load.
"""
