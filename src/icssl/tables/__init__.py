"""Tables as people have them, made into what a model reads."""
