// Pages of a headless Chromium that do as the lines on standard input say.
//
// A line is a JSON object: {"page": NAME, "do": ACTION, ...}. Its answer is {"value": ...} or
// {"error": TEXT}. Pages named NAME share the cookies of NAME, as the tabs of one browser do.

import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [program, patienceMs] = [process.argv[2], Number(process.argv[3])];
const browser = await chromium.launch({
  executablePath: program,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});
const contexts = new Map();
const pages = new Map();

async function open({ page: name, url, settled }) {
  if (!contexts.has(name)) {
    contexts.set(name, await browser.newContext({ viewport: { width: 960, height: 900 } }));
  }
  const page = await contexts.get(name).newPage();
  page.setDefaultTimeout(patienceMs);
  page.on("dialog", (dialog) => dialog.accept());
  pages.set(name, page);
  // Buttons work once a page's scripts have come, which may be after it has loaded.
  await page.goto(url, { waitUntil: settled ? "networkidle" : "load" });
}

const actions = {
  fill: (page, { selector, text }) => page.fill(selector, text),
  click: (page, { selector }) => page.locator(selector).first().click(),
  press: (page, { key }) => page.keyboard.press(key),
  evaluate: (page, { expression }) => page.evaluate(expression),
  wait: (page, { expression }) => page.waitForFunction(expression).then((handle) => handle.jsonValue()),
  screenshot: (page, { path, clip }) => page.screenshot({ path, clip: clip ?? undefined }),
  close: (page) => page.close(),
  forget: async (page, { page: name }) => {
    await contexts.get(name)?.close();
    contexts.delete(name);
    pages.delete(name);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const order = JSON.parse(line);
    const act = actions[order.do];
    const value = act ? await act(pages.get(order.page), order) : await open(order);
    answer = { value: value ?? null };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
