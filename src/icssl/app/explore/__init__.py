"""``icssl explore``: a page in the browser to try the model and to look inside it.

What the page shows is a function of a :class:`~icssl.app.explore.state.State`, which the
address of the page holds. The modules ``layout``, ``page_views``, ``table_view``, ``guard``
and ``app`` make the page and need Dash; everything else works without it.
"""
