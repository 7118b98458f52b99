"""The page at `/`: what a person sees of a node.

`facts` are what is gathered, `selection` and `state` make the JSON value of them, `history` keeps
the last five minutes of totals, `serving` answers browsers. `static` is what they load.
"""
