"""Open a page in the user's browser, where there is one."""


def in_browser(address: str) -> bool:
    """Whether a browser was asked to open it; that there is none is no failure."""
    import webbrowser

    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False
