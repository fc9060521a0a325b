// Pages of a headless Chromium that do as the lines on standard input say.
//
// A line is a JSON object: {"page": NAME, "do": ACTION, ...}. Its answer is {"value": ...} or
// {"error": TEXT}. Pages named NAME share the cookies of NAME, as the tabs of one browser do.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [program, patienceMs] = [process.argv[2], Number(process.argv[3])];
const browser = await chromium.launch({
  executablePath: program,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});
const contexts = new Map();
const pages = new Map();

async function open({ page: name, url, settled, width = 960, height = 900, colours = "light" }) {
  if (!contexts.has(name)) {
    const viewport = { width, height };
    contexts.set(name, await browser.newContext({ viewport, colorScheme: colours }));
  }
  const page = await contexts.get(name).newPage();
  page.setDefaultTimeout(patienceMs);
  page.on("dialog", (dialog) => dialog.accept());
  pages.set(name, page);
  // Buttons work once a page's scripts have come, which may be after it has loaded.
  await page.goto(url, { waitUntil: settled ? "networkidle" : "load" });
}

// Not waitForFunction(), which a page's content security policy may forbid.
async function until(page, expression) {
  const end = Date.now() + patienceMs;
  while (Date.now() < end) {
    try {
      const value = await page.evaluate(expression);
      if (value) return value;
    } catch (error) {
      // Between two documents there is no place to evaluate it.
      if (!/context was destroyed|navigat/.test(String(error))) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`not within ${patienceMs} ms: ${expression}`);
}

const actions = {
  fill: (page, { selector, text }) => page.fill(selector, text),
  click: (page, { selector }) => page.locator(selector).first().click(),
  press: (page, { key }) => page.keyboard.press(key),
  evaluate: (page, { expression }) => page.evaluate(expression),
  wait: (page, { expression }) => until(page, expression),
  screenshot: (page, { path, clip }) => page.screenshot({ path, clip: clip ?? undefined }),
  // Begin and end are parts of the element's width and height.
  drag: async (page, { selector, begin, end }) => {
    const box = await page.locator(selector).first().boundingBox();
    const point = ([x, y]) => [box.x + x * box.width, box.y + y * box.height];
    await page.mouse.move(...point(begin));
    await page.mouse.down();
    await page.mouse.move(...point(end), { steps: 5 });
    await page.mouse.up();
  },
  double: (page, { selector }) => page.locator(selector).first().dblclick(),
  select: async (page, { selector, value }) => void (await page.selectOption(selector, value)),
  // Clicks, and returns the name and the text of the file that the browser saves.
  download: async (page, { selector }) => {
    const [saved] = await Promise.all([page.waitForEvent("download"), page.locator(selector).first().click()]);
    return { name: saved.suggestedFilename(), text: readFileSync(await saved.path(), "utf8") };
  },
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
