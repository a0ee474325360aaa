import { assertEquals, assertRejects } from "@std/assert";
import type { Clock } from "../../../lib/os/clock.ts";
import { connectUnix, type UnixConnection } from "../../../lib/os/network.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { BirdControl, BirdError, type BirdErrorKind } from "./bird_control.ts";

/** A clock whose timers a test fires. */
class ManualClock implements Pick<Clock, "setTimer"> {
  readonly timers = new Set<() => void>();

  setTimer(_ms: number, callback: () => void) {
    this.timers.add(callback);
    return { cancel: () => void this.timers.delete(callback) };
  }
}

/** A connection on which the other side sends `chunks`; `null` is the end, and then it is silent. */
function connectionOf(
  chunks: readonly (string | null)[],
  { onSilence = () => {} }: { readonly onSilence?: () => void } = {},
): UnixConnection & { isClosed: boolean } {
  const left = [...chunks];
  const closed = Promise.withResolvers<null>();
  return {
    isClosed: false,
    read(buffer) {
      const chunk = left.shift();
      if (chunk === undefined) {
        onSilence();
        return closed.promise;
      }
      if (chunk === null) return Promise.resolve(null);
      return Promise.resolve(new TextEncoder().encodeInto(chunk, buffer).written);
    },
    write: (data) => Promise.resolve(data.length),
    close() {
      this.isClosed = true;
      closed.resolve(null);
    },
  };
}

function controlOf(
  chunks: readonly (string | null)[],
  longestReply?: number,
): BirdControl {
  const clock = new ManualClock();
  const onSilence = () => clock.timers.forEach((fire) => fire());
  const connect = () => Promise.resolve(connectionOf(chunks, { onSilence }));
  return new BirdControl(clock, connect, "/bird.ctl", longestReply);
}

const GREETING = "0001 BIRD 2.0.12 ready.\n";

Deno.test("BirdControl.run() returns the lines of a reply with their codes", async () => {
  const reply = "1002-device1  Device\n1006-\n   State: UP\n \n0000 \n";
  const wanted = [
    { code: 1002, text: "device1  Device" },
    { code: 1006, text: "" },
    { code: 1006, text: "  State: UP" },
    { code: 1006, text: "" },
    { code: 0, text: "" },
  ];
  assertEquals(await controlOf([GREETING, reply]).run("show protocols all"), wanted);
  // However the stream is cut.
  assertEquals(await controlOf([...GREETING, ...reply]).run("show protocols all"), wanted);
  assertEquals(await controlOf([GREETING + reply]).run("show protocols all"), wanted);
});

Deno.test("BirdControl.run() ignores log messages in between", async () => {
  const lines = await controlOf([GREETING, "+peer_a: Received: Cease\n0013 up\n"]).run("x");
  assertEquals(lines, [{ code: 13, text: "up" }]);
});

const ERRORS: readonly (readonly [
  what: string,
  chunks: readonly (string | null)[],
  kind: BirdErrorKind,
  reason: string,
])[] = [
  [
    "a refused configuration",
    [GREETING, "0002-Reading\n8002 a.conf:3:1 syntax error\n"],
    "configuration",
    "a.conf:3:1 syntax error",
  ],
  [
    "an unknown symbol",
    [GREETING, "9001 syntax error, unexpected CF_SYM_UNDEFINED\n"],
    "absent",
    "syntax error, unexpected CF_SYM_UNDEFINED",
  ],
  ["a missing protocol", [GREETING, "8003 No protocols match\n"], "absent", "No protocols match"],
  ["another error", [GREETING, "8007 Access denied\n"], "failed", "Access denied"],
  ["no greeting", [null], "down", "BIRD closed the connection on /bird.ctl"],
  [
    "half an answer",
    [GREETING, "1002-dev", null],
    "down",
    "BIRD closed the connection on /bird.ctl",
  ],
  ["silence", [GREETING], "timeout", "no answer on /bird.ctl within 10000 ms"],
  [
    "silence in an answer",
    [GREETING, "1002-a\n"],
    "timeout",
    "no answer on /bird.ctl within 10000 ms",
  ],
  ["another server", ["220 mail ESMTP\r\n"], "unreadable", "unexpected answer '220 mail ESMTP\r'"],
  [
    "an answer without end",
    [GREETING, ...Array(20).fill("1007-route\n")],
    "unreadable",
    "the answer has more than 100 bytes",
  ],
];

for (const [what, chunks, kind, reason] of ERRORS) {
  Deno.test(`BirdControl.run() rejects with '${kind}' after ${what}`, async () => {
    const control = controlOf(chunks, 100);
    const error = await assertRejects(() => control.run("show x"), BirdError);
    assertEquals([error.kind, error.reason], [kind, reason]);
    assertEquals(error.message, `Cannot run 'show x' in BIRD: ${reason}`);
  });
}

Deno.test("BirdControl.run() rejects with 'down' where no socket is", () =>
  withFolder(async (folder) => {
    const socket = `${folder}/bird.ctl`;
    const control = new BirdControl(new ManualClock(), connectUnix, socket);
    const error = await assertRejects(() => control.run("show status"), BirdError);
    assertEquals([error.kind, error.reason], [
      "down",
      `BIRD does not run or does not listen on ${socket}`,
    ]);
  }));

Deno.test("BirdControl.run() runs one command at a time and closes each connection", async () => {
  const connections: { isClosed: boolean }[] = [];
  const connect = () => {
    const isAlone = connections.every(({ isClosed }) => isClosed);
    const connection = connectionOf([GREETING, `0013 ${isAlone ? "alone" : "two at once"}\n`]);
    connections.push(connection);
    return Promise.resolve(connection);
  };
  const control = new BirdControl(new ManualClock(), connect, "/s");
  const replies = await Promise.all([control.run("a"), control.run("b"), control.run("c")]);
  assertEquals(replies.flat().map(({ text }) => text), ["alone", "alone", "alone"]);
  assertEquals(connections.map(({ isClosed }) => isClosed), [true, true, true]);
});

Deno.test("BirdControl.run() gives up on a line without an end long before the limit of a reply", async () => {
  let read = 0;
  const connect = () =>
    Promise.resolve({
      ...connectionOf([]),
      read: (buffer: Uint8Array) =>
        Promise.resolve((read += buffer.length, buffer.fill(65).length)),
    });
  const control = new BirdControl(new ManualClock(), connect, "/bird.ctl");
  const error = await assertRejects(() => control.run("show status"), BirdError);
  assertEquals(error.kind, "unreadable");
  assertEquals(error.reason, "a line of the answer has more than 1048576 characters");
  assertEquals(read <= 2 * 1024 * 1024, true, `${read} bytes were read`);
});
