"""Episodes: a spec and a generator in, an :class:`icssl.episode.Episode` out."""
