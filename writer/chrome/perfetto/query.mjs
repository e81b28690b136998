// query.mjs ENGINE TRACE: opens a trace with Perfetto's trace processor, the engine of its
// viewer, and prints a line of JSON for each line of SQL from stdin: its rows.
//
// The engine is made for a browser's worker and talks over a MessagePort: a worker's
// globals are set up here, and its WebAssembly is handed over instead of fetched.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { runInThisContext } from 'node:vm';
import { MessageChannel } from 'node:worker_threads';

const [folder, trace] = process.argv.slice(2);
const asset = (name) => path.join(folder, name);

function replaced(source, edits) {
  for (const [from, to] of edits) {
    if (!source.includes(from)) throw new Error(`the engine has no ${JSON.stringify(from)}: another version?`);
    source = source.replace(from, to);
  }
  return source;
}

async function connect() {
  Object.defineProperty(globalThis, 'self', { value: globalThis });
  Object.defineProperty(globalThis, 'location', { value: { href: pathToFileURL(folder).href + '/' } });
  globalThis.WorkerGlobalScope = function WorkerGlobalScope() {};
  globalThis.wasm = new Uint8Array(fs.readFileSync(asset('trace_processor.wasm')));
  const ready = new Promise((resolve) => { globalThis.ready = resolve; });
  runInThisContext(replaced(fs.readFileSync(asset('engine_bundle.node.js'), 'utf8'), [
    ['this.useMemory64 = hasMemory64Support();', 'this.useMemory64 = false;'],
    ['locateFile: (s) => s,', 'locateFile: (s) => s, wasmBinary: globalThis.wasm,'],
    ["[fn, REQ_BUF_SIZE]));", "[fn, REQ_BUF_SIZE])); globalThis.ready(this);"],
  ]));
  const bridge = await ready;
  const { port1, port2 } = new MessageChannel();
  bridge.initialize(port1);
  const { EngineBase } = await import(pathToFileURL(asset('engine.mjs')).href);
  class Engine extends EngineBase {
    mode = 'WASM';
    id = 'test';
    rpcSendRequestBytes(bytes) { port2.postMessage(bytes); }
  }
  const engine = new Engine();
  port2.onmessage = ({ data }) => engine.onRpcResponseBytes(data);
  engine.close = () => port2.close(); // else the process stays
  return engine;
}

const engine = await connect();
console.warn = () => {}; // what the decoder says of each batch
const chunk = 1 << 20;
const bytes = new Uint8Array(fs.readFileSync(trace));
for (let at = 0; at < bytes.length; at += chunk) await engine.parse(bytes.subarray(at, at + chunk));
await engine.notifyEof();
for (const sql of fs.readFileSync(0, 'utf8').split('\n').filter(Boolean)) {
  const result = await engine.query(sql);
  const columns = result.columns(), rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(columns.map((c) => { const v = it.get(c); return typeof v === 'bigint' ? Number(v) : v; }));
  }
  process.stdout.write(JSON.stringify(rows) + '\n');
}
engine.close();
