// Reads a trace as chrome://tracing does, by the importer of Chromium's trace viewer, and prints what
// it found: node trace_importer.js TRACE
'use strict';

const fs = require('fs');
const path = require('path');

const viewer = path.join(__dirname, 'node_modules', 'traceviewer');
require(path.join(viewer, 'catapult_build', 'node_bootstrap.js'));
const tracing = path.join(viewer, 'tracing');
const libraries = path.join(tracing, 'third_party');
const folders = fs.readdirSync(libraries).flatMap(
    name => [path.join(libraries, name), path.join(libraries, name, 'dist')]);
HTMLImportsLoader.addArrayToSourcePath([tracing, ...folders.filter(folder => fs.existsSync(folder))]);
HTMLImportsLoader.loadHTML('/tracing/importer/import.html');
HTMLImportsLoader.loadHTML('/tracing/model/model.html');
HTMLImportsLoader.loadHTML('/tracing/extras/full_config.html');

const model = new tr.Model();
new tr.importer.Import(model).importTraces([fs.readFileSync(process.argv[2], 'utf8')]);
const processes = Object.values(model.processes).map(each => ({
  name: each.name,
  threads: Object.fromEntries(Object.values(each.threads).map(
      thread => [thread.name, thread.sliceGroup.length + thread.asyncSliceGroup.length])),
  counters: Object.fromEntries(Object.values(each.counters).map(
      counter => [counter.name, counter.series.map(series => series.name)])),
}));
console.log(JSON.stringify({processes, warnings: model.importWarnings}));
