"""``icssl explore``: a page in the browser on which the model can be tried and opened.

What the page shows is a function of a :class:`~icssl.app.explore.state.State`, which its
address carries. The modules ``layout``, ``views``, ``table_view``, ``guard`` and ``app``
make the page and need Dash; everything else works without it.
"""
