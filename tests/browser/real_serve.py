"""`tandem serve` beside a daemon with two programs that do not fit on the software GPU together."""

import json

from harness import BUILD, TANDEM, Card, train, wait_until

SERVER = BUILD / "lib" / "tandem" / "tandem-serve"


class RealServe:
    """`names`: of the two runs."""

    def __init__(self, root, names):
        self.card = Card(root)
        try:
            self.card.start_daemon()
            runs = [self.card.shared(train("150M", 1000000, "--pause-ms", "20"), "--name", name) for name in names]
            wait_until(lambda: len(self.card.sessions()) == len(names), runs[0], "both runs have sessions")
            server = self.card.spawn([TANDEM, "serve", "--listen", "127.0.0.1:0", "--json"])
            self.url = json.loads(server.stdout.readline())["url"].rstrip("/")
        except BaseException:
            self.card.close()
            raise

    def close(self):
        self.card.close()
