import { assertEquals } from "@std/assert";

/** Every kind of place at which an error may occur without a caller that catches it. */
const PROGRAM = `
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import process from "node:process";
import { UncaughtErrors } from "${import.meta.resolve("./uncaught_errors.ts")}";
import { systemClock } from "${import.meta.resolve("./clock.ts")}";

const thrown = () => { throw new Error("a fault"); };
const closed = Deno.listen({ hostname: "127.0.0.1", port: 0 });
const { port } = closed.addr;
closed.close();
Deno.addSignalListener("SIGUSR1", thrown);
const places = {
  timer: () => systemClock.setTimer(1, thrown),
  "timer of Deno": () => setTimeout(thrown, 1),
  promise: () => void Promise.reject(new Error("a fault")),
  microtask: () => queueMicrotask(thrown),
  "tick of Node": () => process.nextTick(thrown),
  "event listener": () => {
    const target = new EventTarget();
    target.addEventListener("x", thrown);
    target.dispatchEvent(new Event("x"));
  },
  "abort listener": () => {
    const controller = new AbortController();
    controller.signal.addEventListener("abort", thrown);
    controller.abort();
  },
  stream: () => void new ReadableStream({ pull: thrown }).getReader().read(),
  "socket of Node": () => void connect({ host: "127.0.0.1", port }),
  "listener of a socket of Node": () =>
    void connect({ host: "127.0.0.1", port }).on("error", thrown),
  "session of HTTP/2": () => void connectHttp2("http://127.0.0.1:" + port),
  signal: () => Deno.kill(Deno.pid, "SIGUSR1"),
};
let reports = 0;
const fault = () => { throw new Error("the log is full"); };
const uncaught = new UncaughtErrors();
uncaught.take({ error: () => { reports++; if (reports % 2 === 0) fault(); } });
const silent = [];
for (const [name, provoke] of Object.entries(places)) {
  const before = uncaught.count;
  provoke();
  const end = performance.now() + 5000;
  while (uncaught.count === before && performance.now() < end) {
    await systemClock.yieldToEventLoop();
  }
  if (uncaught.count === before) silent.push(name);
}
console.log(JSON.stringify({ silent, missed: uncaught.count - reports }));
Deno.exit(0);
`;

Deno.test("UncaughtErrors handles errors from every source, and the process continues", async () => {
  const file = await Deno.makeTempFile({ suffix: ".ts" });
  await Deno.writeTextFile(file, PROGRAM);
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-check", "--no-config", "--quiet", "--allow-all", file],
  }).output();
  await Deno.remove(file);
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes).trim();
  assertEquals({ code, stdout: text(stdout), stderr: text(stderr) }, {
    code: 0,
    stdout: JSON.stringify({ silent: [], missed: 0 }),
    stderr: "",
  });
});
