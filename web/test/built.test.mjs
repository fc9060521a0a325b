// The page as it was built: TANDEM_PAGE names its folder.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const folder = process.env.TANDEM_PAGE;
const files = () =>
  ["index.html", "licences.txt", ...readdirSync(join(folder, "assets")).map((name) => `assets/${name}`)].map((name) => ({
    name,
    content: readFileSync(join(folder, name)),
  }));

test("it is below 150 kB compressed", () => {
  const size = files().reduce((sum, file) => sum + gzipSync(file.content).length, 0);
  assert.ok(size > 5000, `${size} bytes`);
  assert.ok(size < 150000, `${size} bytes`);
});

test("it needs nothing from elsewhere", () => {
  const index = readFileSync(join(folder, "index.html"), "utf8");
  const links = [...index.matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => match[1]);
  const assets = files().map((file) => file.name);
  assert.equal(links.length, 3);
  for (const link of links) assert.ok(link === "data:," || assets.includes(link), link);
  for (const { name, content } of files().filter((file) => !file.name.endsWith(".txt"))) {
    // Names of XML languages are no addresses to fetch.
    const addresses = content.toString().match(/https?:\/\/[^"'`\s)]*/g) ?? [];
    assert.deepEqual(addresses.filter((each) => !each.startsWith("http://www.w3.org/")), [], name);
  }
});

test("names of files have their hash, and no source sets HTML", () => {
  for (const name of readdirSync(join(folder, "assets"))) assert.match(name, /-[A-Z0-9]{8}\.(js|css)$/);
  for (const name of readdirSync(new URL("../src", import.meta.url))) {
    const text = readFileSync(new URL(`../src/${name}`, import.meta.url), "utf8");
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacent|document\.write/, name);
  }
});
