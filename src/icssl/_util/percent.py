"""Probabilities in words of a person: percents that do not claim to be certain."""


def percent(probability: float) -> str:
    """Return a probability as a percent, and 0% or 100% only where it is that.

    Examples
    --------
    >>> percent(0.957), percent(0.9957), percent(1.0), percent(0.003)
    ('96%', '> 99%', '100%', '< 1%')
    """
    text = f"{probability:.0%}"
    if text == "100%" and probability < 1:
        return "> 99%"
    return "< 1%" if text == "0%" and probability > 0 else text
