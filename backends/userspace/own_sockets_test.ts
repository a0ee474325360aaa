import { assertEquals } from "@std/assert";
import { type ConnectionEnds, OwnSockets, SHARED_SOCKETS_BYTES } from "./own_sockets.ts";

const FRONTEND = { hostname: "10.96.0.1", port: 80 };
const REWRITTEN = { hostname: "10.0.0.9", port: 8080 };

function own(port: number) {
  return { hostname: "10.0.0.1", port };
}

function session(client: ConnectionEnds) {
  return { hops: 0, client, close() {} };
}

/** Two threads with the same memory. */
function twoThreads() {
  const memory = new SharedArrayBuffer(SHARED_SOCKETS_BYTES);
  const threads = [0, 1].map((index) => new OwnSockets(memory, index));
  return { memory, threads: threads as [OwnSockets, OwnSockets] };
}

const STRANGER: ConnectionEnds = {
  localAddr: FRONTEND,
  remoteAddr: { hostname: "192.0.2.1", port: 999 },
};

Deno.test("OwnSockets recognizes a connection of another thread, whichever end is known first", () => {
  const { threads: [one, two] } = twoThreads();
  const dialled = { localAddr: own(4000), remoteAddr: FRONTEND };
  const taken = { localAddr: FRONTEND, remoteAddr: own(4000) };
  assertEquals(one.dial(session(STRANGER), dialled), false);
  assertEquals(two.take(session(taken), taken), true);
  const later = { localAddr: own(4001), remoteAddr: FRONTEND };
  const earlier = { localAddr: FRONTEND, remoteAddr: own(4001) };
  assertEquals(two.take(session(earlier), earlier), false);
  assertEquals(one.dial(session(STRANGER), later), true);
});

Deno.test("OwnSockets finds a circle of rewritten connections that changes threads", () => {
  const { threads } = twoThreads();
  let client = STRANGER;
  let turn = 0;
  for (; turn < 100; turn++) {
    const thread = threads[turn % 2]!;
    const counter = session(client);
    if (thread.take(counter, client)) break;
    const endpoint = { localAddr: own(5000 + turn), remoteAddr: REWRITTEN };
    if (thread.dial(counter, endpoint)) break;
    client = { localAddr: FRONTEND, remoteAddr: own(5000 + turn) };
  }
  assertEquals(turn, 33);
});

Deno.test("OwnSockets does not take a program for itself that gets a port of a circle", () => {
  const sockets = new OwnSockets();
  const first = session(STRANGER);
  sockets.take(first, STRANGER);
  const second = session({ localAddr: FRONTEND, remoteAddr: own(4000) });
  sockets.take(second, second.client);
  assertEquals(sockets.dial(first, { localAddr: own(4000), remoteAddr: FRONTEND }), true);
  sockets.untake(first);
  sockets.untake(second);
  // The second connection to the endpoint is reported after both sessions have ended.
  sockets.dial(second, { localAddr: own(4001), remoteAddr: FRONTEND });
  for (const port of [4000, 4001]) {
    const client = { localAddr: { hostname: "10.96.0.99", port: 443 }, remoteAddr: own(port) };
    assertEquals(sockets.take(session(client), client), false, `port ${port}`);
  }
});

Deno.test("OwnSockets forgets what was closed, and the sockets of a thread that has ended", () => {
  const { threads: [one, two] } = twoThreads();
  const counter = session(STRANGER);
  const dialled = { localAddr: own(4000), remoteAddr: FRONTEND };
  const taken = { localAddr: FRONTEND, remoteAddr: own(4000) };
  one.dial(counter, dialled);
  one.hangUp(dialled);
  assertEquals(two.take(session(taken), taken), false);
  two.untake(session(taken));
  one.dial(counter, dialled);
  one.openFlow(6000);
  assertEquals([two.hasFlow(6000), two.hasFlow(6001)], [true, false]);
  one.forgetOwn();
  assertEquals([two.take(session(taken), taken), two.hasFlow(6000)], [false, false]);
  two.forgetOwn();
  assertEquals(one.dial(counter, dialled), false);
});
