"""Code that all stages share: artefacts, configuration, seeds, errors and the command line."""

if not __name__.startswith("contamination."):
    raise ImportError(
        f"import contamination.{__name__}: {__name__} is only the name of its folder."
    )
