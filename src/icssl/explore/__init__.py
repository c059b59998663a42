"""``icssl explore``: a page in the browser on which the model can be tried and opened.

What the page shows is a function of a :class:`icssl.explore.state.State`, which its address
carries. Dash is needed by what becomes part of the page: :mod:`icssl.explore.layout`,
:mod:`icssl.explore.views`, :mod:`icssl.explore.table_view`, :mod:`icssl.explore.guard` and
:mod:`icssl.explore.app`.
Everything else works without it.
"""
