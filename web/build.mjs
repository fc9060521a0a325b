// Builds the page: node build.mjs MODULES OUT [LIMIT]
//
// MODULES is a node_modules folder with what package-lock.json names. OUT gets index.html and assets/,
// whose names have the hash of what is in them, so that browsers may keep them for ever.

import { createRequire } from "node:module";
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [modules, out] = process.argv.slice(2).map((path) => resolve(path));
const esbuild = createRequire(join(modules, "x.js"))("esbuild");

const result = await esbuild.build({
  absWorkingDir: here,
  entryPoints: { page: "src/main.jsx" },
  entryNames: "[name]-[hash]",
  outdir: join(out, "assets"),
  nodePaths: [modules],
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2020"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none", // licences.txt has them whole
  metafile: true,
  write: false,
});

const name = (ending) => basename(result.outputFiles.find((file) => file.path.endsWith(ending)).path);
const index = readFileSync(join(here, "src/index.html"), "utf8")
  .replace("page.css", `assets/${name(".css")}`)
  .replace("page.js", `assets/${name(".js")}`);
const licences = ["preact", "uplot"].map(
  (each) => `${each}\n\n${readFileSync(join(modules, each, "LICENSE"), "utf8")}`,
);

// Made beside the old one and then put in its place: a server that reads meanwhile finds a whole page.
const fresh = `${out}.new`;
rmSync(fresh, { recursive: true, force: true });
mkdirSync(join(fresh, "assets"), { recursive: true });
for (const file of result.outputFiles) writeFileSync(join(fresh, "assets", basename(file.path)), file.contents);
writeFileSync(join(fresh, "licences.txt"), licences.join("\n----\n\n"));
writeFileSync(join(fresh, "index.html"), index);
rmSync(out, { recursive: true, force: true });
renameSync(fresh, out);
