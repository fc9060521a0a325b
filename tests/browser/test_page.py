"""The page of `tandem serve` in headless Chromium."""

import json

import pytest
import real_serve
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


@pytest.fixture(scope="module")
def page_server(tmp_path_factory):
    """The server of most tests: `url` is its address, and runs named film and EVIL have sessions.

    A real one, as soon as the build has it.
    """
    names = ("film", EVIL)
    if real_serve.SERVER.exists():
        server = real_serve.RealServe(tmp_path_factory.mktemp("page"), names)
        yield server
        server.close()
    else:
        server = FakeServe(BUILD / "share/tandem/web", sessions=12, names=names)
        yield server
        server.stop()


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
    assert tab.count("main.old article.card") == 3  # the last numbers stay, marked as old
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


def chosen_interval(tab):
    tab.wait("location.hash.includes('from=')")
    return tab.value("(([, query]) => [...new URLSearchParams(query)])(location.hash.split('?'))")


def charts(tab):
    tab.wait("document.querySelectorAll('.chart canvas').length === 3")


def test_history_shows_charts_with_tables(tab, page_server):
    tab.open(f"{page_server.url}/#/history")
    charts(tab)
    for name in ("Utilisation", "Waiting", "Memory"):
        assert name in tab.text()
    assert "gpu0" in tab.text(".panel .legend")
    tab.do("click", selector=".panel summary")
    tab.wait("document.querySelectorAll('.panel tbody tr').length > 5")
    names = tab.value("[...document.querySelectorAll('.panel')[0].querySelectorAll('.legend .name')].map((each) => each.innerText)")
    assert tab.text(".panel thead").split() == ["From", *names]
    tab.do("click", selector="input[value='user']")
    tab.wait("location.hash.includes('by=user')")
    for chosen in ("24h", "4w"):
        tab.do("click", selector=f"input[value='{chosen}']")
        tab.wait(f"location.hash.includes('range={chosen}')")
        charts(tab)


def test_a_drag_zooms_and_a_double_click_resets(tab, page_server):
    tab.open(f"{page_server.url}/#/history?range=1h")
    charts(tab)
    tab.do("drag", selector=".chart .u-over", begin=[0.5, 0.5], end=[0.75, 0.5])
    shown = dict(chosen_interval(tab))
    assert 600 < int(shown["to"]) - int(shown["from"]) < 1200  # a quarter of an hour
    tab.wait("!document.querySelector('button.reset').disabled")
    tab.wait("!document.querySelector('.charts.busy')")
    tab.do("double", selector=".chart .u-over")
    tab.wait("!location.hash.includes('from=')")


def test_zoom_by_keyboard(tab, page_server):
    tab.open(f"{page_server.url}/#/history?range=1h")
    charts(tab)
    tab.value("document.querySelector('.charts').focus()")
    tab.do("press", key="+")
    shown = dict(chosen_interval(tab))
    assert int(shown["to"]) - int(shown["from"]) == 1800
    tab.do("press", key="ArrowLeft")
    tab.wait(f"!location.hash.includes('from={shown['from']}')")
    tab.do("press", key="0")
    tab.wait("!location.hash.includes('from=')")


def test_a_zoom_into_nothing_keeps_the_charts(tab, fake):
    tab.open(f"{fake().url}/#/history?range=4w&from=1000000000&to=1000003600")
    charts(tab)
    assert "Nothing is recorded for this interval." in tab.text()
    tab.do("double", selector=".chart .u-over")
    tab.wait("!location.hash.includes('from=')")
    tab.wait("!document.querySelector('main').innerText.includes('Nothing is recorded')")


def test_people_shows_who_used_what_and_saves_it(tab, page_server):
    tab.open(f"{page_server.url}/#/people?by=run")
    tab.wait("document.querySelectorAll('.people-table tbody tr').length > 0")
    assert "film" in tab.text(".people-table") and EVIL in tab.text(".people-table")
    assert "in all" in tab.text(".people-table tfoot")
    saved = tab.do("download", selector="button.csv")
    assert saved["name"] == "tandem-run-7d.csv"
    assert "film" in saved["text"] and "held_s" in saved["text"].splitlines()[0]
    for by in ("user", "day"):
        tab.do("click", selector=f"input[value='{by}']")
        tab.wait(f"document.querySelector('.people-table caption').innerText === 'Use by {by}'")


def test_plan_answers_to_its_sliders(tab, page_server):
    tab.open(f"{page_server.url}/#/plan?users=4")
    tab.wait("document.querySelector('.chart canvas') && document.querySelector('.tiles')")
    before = tab.text(".tiles")
    tab.value("document.querySelector('input[name=Users]').focus()")
    tab.do("press", key="ArrowRight")
    tab.wait("location.hash.includes('users=5')")
    tab.wait(f"document.querySelector('.tiles').innerText !== {json.dumps(before)}")
    tab.do("click", selector=".week button")
    tab.wait("location.hash.includes('pause=')")


def test_an_error_is_quoted_and_other_screens_work(tab, fake):
    server = fake(sessions=1, errors={"report": f"accounts.db: {EVIL}"})
    tab.open(f"{server.url}/#/people?since=own&from=1&to=9999999999999")
    tab.until_text(f"accounts.db: {EVIL}")
    tab.go("plan")
    tab.wait("document.querySelector('.tiles')")
