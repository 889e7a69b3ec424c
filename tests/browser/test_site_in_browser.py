"""The documentation site in a real browser: opened from disk with the network cut, it can be searched."""


def test_search_works_from_disk(site, opened):
    watched = opened()
    page = watched.page
    page.goto((site / "tutorials" / "gridworld.html").as_uri())
    page.locator("input[name=query]").click()
    page.keyboard.type("identifiability", delay=10)
    page.wait_for_selector(".md-search-result__link")
    found = [link.get_attribute("href") for link in page.locator(".md-search-result__link").all()]
    assert any("is-my-posterior-good.html" in address for address in found)
    assert all(address.startswith("file:") for address in [*found, *watched.requests])
    assert watched.problems == []
