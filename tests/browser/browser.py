"""A headless Chromium, and notebooks on its pages as their users see them."""

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE_S = 120


class Browser:
    """Chromium and the program that drives it (pages.mjs)."""

    def __init__(self, log):
        self._log = log.open("w")
        self.names = set()  # of the pages
        self._process = subprocess.Popen(
            ["node", HERE / "pages.mjs", "/usr/bin/chromium", str(PATIENCE_S * 1000)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip

    def order(self, page, action, **arguments):
        self.names.add(page)
        line = json.dumps({"page": page, "do": action, **arguments})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the browser ended; see {self._log.name}"
        answer = json.loads(answer)
        assert "error" not in answer, f"{page}: {action} {arguments}: {answer['error']}"
        return answer["value"]

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


class Page:
    """A user's tab."""

    def __init__(self, browser, user, url):
        self._browser, self.user, self.url = browser, user, url

    def do(self, action, **arguments):
        return self._browser.order(self.user, action, **arguments)

    def wait(self, expression):
        return self.do("wait", expression=expression)

    def log_in(self, password):
        """From the Hub's form to the user's server, which the Hub starts."""
        self.do("open", url=f"{self.url}/hub/login")
        self.do("fill", selector="#username_input", text=self.user)
        self.do("fill", selector="#password_input", text=password)
        self.do("click", selector="#login_submit")
        self.wait(f"location.pathname.startsWith('/user/{self.user}/')")

    def open_notebook(self, name):
        """Opens the notebook in a new tab and waits for its kernel."""
        self.do("open", url=f"{self.url}/user/{self.user}/notebooks/{name}")
        self.wait("window.Jupyter && Jupyter.notebook && Jupyter.notebook.kernel && "
                  "Jupyter.notebook.kernel.info_reply.status === 'ok'")  # fmt: skip

    @property
    def kernel(self):
        return self.do("evaluate", expression="document.querySelector('.kernel_indicator_name').innerText")

    def begin(self, cell):
        """Runs a cell, as the user does: a click into it and a key."""
        before = self._prompt(cell)
        self.do("click", selector=f"#notebook-container > .cell >> nth={cell} >> .input_area")
        self.do("press", key="Control+Enter")
        self.wait(f"{self._prompt_of(cell)} !== {json.dumps(before)}")

    def end(self, cell):
        """What stands below the cell when it has ended."""
        self.wait(f"/\\[\\d+\\]/.test({self._prompt_of(cell)})")
        return self.shown(cell)

    def run(self, cell):
        self.begin(cell)
        return self.end(cell)

    def shown(self, cell):
        return self.do("evaluate", expression=self._output_of(cell)).strip()

    def until_shown(self, cell, text):
        self.wait(f"{self._output_of(cell)}.includes({json.dumps(text)})")
        return self.shown(cell)

    def forget(self):
        """Closes the user's tabs, and logs the user out of this browser."""
        self.do("forget")

    def screenshot(self, path, first=None, last=None):
        """Of the page, or of the cells from `first` to `last`."""
        clip = None
        if first is not None:
            clip = self.do("evaluate", expression=f"""(() => {{
                document.activeElement.blur();
                const [from, to] = [{first}, {last}].map((number) => {self._cells}[number]);
                from.scrollIntoView({{block: "center"}});
                const [top, bottom] = [from.getBoundingClientRect(), to.getBoundingClientRect()];
                return {{x: top.x, y: top.y - 4, width: top.width, height: bottom.bottom - top.y + 8}};
            }})()""")  # fmt: skip
        self.do("screenshot", path=str(path), clip=clip)

    _cells = "document.querySelectorAll('#notebook-container > .cell')"

    def _prompt_of(self, cell):
        return f"{self._cells}[{cell}].querySelector('.input_prompt').innerText"

    def _prompt(self, cell):
        return self.do("evaluate", expression=self._prompt_of(cell))

    def _output_of(self, cell):
        return f"{self._cells}[{cell}].querySelector('.output_wrapper').innerText"
