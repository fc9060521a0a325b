"""The page of `tandem serve` in headless Chromium."""

import json

import pytest
from fake_serve import FakeServe
from harness import BUILD

EVIL = "<img src=x onerror=\"document.title='broken into'\">"


@pytest.fixture
def fake(request):
    """Makes servers with numbers of their own, for what a real daemon does not give on demand."""
    servers = []

    def make(**settings):
        web = BUILD / "share/tandem/web"
        assert (web / "index.html").is_file(), "the page is not built: `./dev build page` says what is missing"
        servers.append(FakeServe(web, **settings))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def page_server(fake):
    """The server of most tests: `url` is its address, and runs named film and EVIL have sessions."""
    return fake(sessions=12, names=("film", EVIL))


class Tab:
    """A tab of a browser of its own."""

    def __init__(self, browser, name):
        self._browser, self._name = browser, name

    def do(self, action, **arguments):
        return self._browser.order(self._name, action, **arguments)

    def open(self, url, width=1280, height=800, colours="light"):
        self.do("open", url=url, width=width, height=height, colours=colours)
        return self

    def value(self, expression):
        return self.do("evaluate", expression=expression)

    def wait(self, expression):
        return self.do("wait", expression=expression)

    def text(self, selector="main"):
        return self.value(f"document.querySelector({json.dumps(selector)}).innerText")

    def until_text(self, text, selector="body"):
        self.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")

    def count(self, selector):
        return self.value(f"document.querySelectorAll({json.dumps(selector)}).length")

    def go(self, screen):
        self.do("click", selector=f"nav a[href='#/{screen}']")
        self.wait(f"document.querySelector('main').dataset.screen === '{screen}'")


@pytest.fixture
def tab(browser, request, pictures):
    tab = Tab(browser, request.node.name)
    yield tab
    if request.node.name in browser.names:
        tab.do("screenshot", path=str(pictures / f"{request.node.name}.png"))
        tab.do("forget")


def live(tab):
    tab.wait("document.querySelectorAll('article.card').length > 0")


def test_now_shows_cards_and_sessions_and_changes_by_itself(tab, page_server):
    tab.open(page_server.url)
    live(tab)
    card = tab.text("article.card")
    assert "gpu0" in card and "Utilisation" in card and "Memory" in card and "free" in card
    assert tab.text(".connection") == "live"
    assert "film" in tab.text(".sessions-table")
    before = tab.text()
    tab.wait(f"document.querySelector('main').innerText !== {json.dumps(before)}")
    tab.wait("document.querySelector('.utilisation polyline')?.getAttribute('points').split(' ').length >= 3")


def test_a_waiting_session_says_why(tab, page_server):
    tab.open(page_server.url)
    live(tab)
    tab.wait(r"/position \d+, about .* s, .+ holds the card/.test(document.querySelector('.sessions-table').innerText)")


def test_sessions_of_one_user(tab, page_server):
    tab.open(page_server.url)
    live(tab)
    everyone = tab.count(".sessions-table tbody tr")
    user = tab.value("document.querySelector('.sessions select').options[1].value")
    tab.do("select", selector=".sessions select", value=user)
    tab.wait("location.hash.includes('user=')")
    tab.wait("new Set([...document.querySelectorAll('td.at-user')].map((cell) => cell.innerText)).size === 1")
    assert tab.text("td.at-user") == user
    assert tab.count(".sessions-table tbody tr") <= everyone


def test_a_name_that_attacks_the_page_is_text(tab, page_server):
    tab.open(page_server.url)
    live(tab)
    assert EVIL in tab.text(".sessions-table")
    assert tab.count("main img") == 0
    assert tab.value("document.title") == "Now – Tandem"


def test_without_programs_the_page_says_what_to_do(tab, fake):
    tab.open(fake(sessions=0).url)
    tab.until_text("No program uses a GPU.")
    assert "tandem run python train.py" in tab.text()


def test_without_a_daemon_the_page_says_so(tab, fake):
    tab.open(fake(daemon=False).url)
    tab.until_text("no daemon answers; `tandem run` starts one")


def test_a_lost_server_is_told_and_found_again(tab, fake):
    server = fake(sessions=5)
    tab.open(server.url)
    live(tab)
    server.stop()
    tab.until_text("Lost the server.")
    assert tab.text(".connection") == "not connected"
    assert tab.count("main.old article.card") == 3  # what was shown stays, marked as old
    server.start()
    tab.wait("document.querySelector('.connection').innerText === 'live'")
    tab.wait("!document.querySelector('.trouble, main.old')")


def test_a_token_comes_by_the_address_and_leaves_it(tab, fake):
    server = fake(sessions=2, token="secret+1")
    tab.open(server.url)
    tab.until_text("The server refuses this page.")
    tab.do("open", url=f"{server.url}/?#token=secret%2B1")
    live(tab)
    assert "secret" not in tab.value("location.href")
    assert all("secret" not in path for path in server.asked)


def test_forty_sessions_on_a_phone_need_no_sideways_scrolling(tab, fake):
    tab.open(fake(sessions=40).url, width=360, height=740)
    live(tab)
    assert tab.count(".sessions-table tbody tr") == 40
    for screen in ("now", "history", "people", "plan"):
        tab.go(screen)
        assert tab.value("document.documentElement.scrollWidth") <= 360, screen


def test_dark_follows_the_system_until_chosen(tab, page_server):
    tab.open(page_server.url, colours="dark")
    live(tab)
    back = "getComputedStyle(document.body).backgroundColor"
    dark = tab.value(back)
    tab.do("click", selector="button.theme")
    assert tab.value(back) != dark
    tab.do("click", selector="button.theme")
    assert tab.value(back) == dark


def test_all_screens_by_keyboard(tab, page_server):
    tab.open(page_server.url)
    live(tab)
    tab.do("press", key="Tab")
    assert tab.value("document.activeElement.className") == "skip"
    for screen in ("now", "history", "people", "plan"):
        for _ in range(10):
            tab.do("press", key="Tab")
            if tab.value("document.activeElement.getAttribute('href')") == f"#/{screen}":
                break
        tab.do("press", key="Enter")
        tab.wait(f"document.querySelector('main').dataset.screen === '{screen}'")
        if screen != "now":
            tab.wait("document.activeElement === document.querySelector('main')")
        tab.value("document.querySelector('.skip').focus()")
