"""``icssl explore``: a page in the browser on which the model can be tried and opened.

What the page shows is a function of a :class:`icssl.explore.state.State`, which its address
carries. Everything but :mod:`icssl.explore.layout` and :mod:`icssl.explore.app` works
without Dash.
"""
