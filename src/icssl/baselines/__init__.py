"""Reference methods: an episode in, class scores out."""
