"""Episodes: a spec and a generator in, an :class:`icssl.episodes.episode.Episode` out."""
