import { assert, assertEquals, assertThrows } from "@std/assert";
import { systemClock } from "../../../lib/os/clock.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { LIBC, TurnedEngine } from "../../../tests/support/drivers/turned_engine.ts";
import { testNeeding } from "../../../tests/support/requirement.ts";
import { EventLoop, type FdOwner } from "./event_loop.ts";
import { EPOLL, Libc, SystemError } from "./libc.ts";
import { connectUnixStream, listenUnixStreams, type UnixStream } from "./unix_streams.ts";

const test = testNeeding("the syscalls engine", [LIBC]);

test("EventLoop.run() strikes timers in order, without those that are cancelled, and continues what awaits them", () => {
  const libc = new Libc();
  let now = 0;
  const seen: string[] = [];
  // Time passes with each look at it: no wait takes real time.
  const clock = { ...systemClock, now: () => now += 10 };
  const loop = new EventLoop(libc, clock, (error) => seen.push(String(error)));
  const note = (name: string) => () => void seen.push(name);
  loop.clock.setTimer(100, note("second"));
  loop.clock.setTimer(50, note("first"));
  const both = [
    loop.clock.setTimer(50, note("cancelled")),
    loop.clock.setTimer(1e9, note("never")),
  ];
  loop.clock.setTimer(50, () => both[0]!.cancel());
  both[0]!.cancel();
  both[1]!.cancel();
  loop.clock.setTimer(120, () => {
    throw new Error("thrown");
  });
  void (async () => {
    await loop.clock.sleep(200);
    seen.push("slept");
    loop.again(note("again"));
    await loop.clock.nextTurn();
    const stop = new AbortController();
    const sleep = loop.clock.sleep(1e9, stop.signal);
    stop.abort("aborted");
    await sleep.catch((reason) => seen.push(reason));
    loop.stop();
  })();
  loop.run();
  loop.dispose();
  libc.unload();
  assertEquals(seen, ["first", "second", "Error: thrown", "slept", "again", "aborted"]);
});

test("EventLoop has one owner for each file, and no event of a closed one reaches the next", () => {
  const libc = new Libc();
  const loop = new EventLoop(libc, systemClock, (error) => {
    throw error;
  });
  const seen: string[] = [];
  const pipe = () => libc.pipe(4096)!;
  const [first, second] = [pipe(), pipe()];
  const other: FdOwner = { onEvents: () => seen.push("other") };
  const closers = [first, second].map(({ to }, index): FdOwner => ({
    onEvents() {
      seen.push(`file ${index}`);
      // Both have an event in this turn. The other's number is used again at once.
      const rest = [first, second][1 - index]!;
      loop.close(rest.to, closers[1 - index]!);
      const again = pipe();
      assert([again.from, again.to].includes(rest.to));
      for (const fd of [again.from, again.to]) loop.own(fd, other, 0);
      loop.close(to, this);
    },
  }));
  loop.own(first.to, closers[0]!, EPOLL.OUT);
  loop.own(second.to, closers[1]!, EPOLL.OUT);
  assertThrows(() => loop.close(first.to, other), Error, "belongs to another owner");
  assertThrows(() => loop.own(first.to, other, 0), Error, "has an owner");
  loop.turn(0);
  loop.turn(0);
  assertEquals([seen.length, loop.size], [1, 2]);
  for (let fd = 0; loop.size > 0; fd++) {
    try {
      loop.close(fd, other);
    } catch {
      // It belongs to someone else.
    }
  }
  libc.close(first.from);
  libc.close(second.from);
  loop.dispose();
  libc.unload();
});

test("Libc takes no length beyond its buffer", () => {
  const libc = new Libc();
  const [small, headers] = [new Uint8Array(10), new Uint8Array(64)];
  for (
    const call of [
      () => libc.receive(0, small, 11),
      () => libc.send(0, small, 11),
      () => libc.receiveMessages(0, headers, 2),
      () => libc.sendMessages(0, headers, 2),
    ]
  ) assertThrows(call, RangeError);
  assertThrows(() => libc.ownAddress(-1), SystemError, "getsockname: EBADF");
  libc.unload();
});

test("UnixStream carries megabytes to a reader that is slow, and tells of its end", async () => {
  const folder = await Deno.makeTempDir();
  {
    await using turned = new TurnedEngine();
    const { loop } = turned;
    const path = `${folder}/control.sock`;
    const taken: UnixStream[] = [];
    const got: number[] = [];
    const listener = listenUnixStreams(loop, path, {
      onStream(stream) {
        stream.user = { onData: (bytes) => void got.push(...bytes), onEnd() {} };
        taken.push(stream);
      },
      onError() {},
    });
    assertThrows(() => listenUnixStreams(loop, path, { onStream() {}, onError() {} }), SystemError);
    assertThrows(() => connectUnixStream(loop, `${folder}/none`), SystemError, "ENOENT");
    const data = Uint8Array.from({ length: 3 << 20 }, (_, at) => at * 7 >> 3);
    let [drained, ended] = [0, 0];
    const near = connectUnixStream(loop, path);
    near.user = { onData() {}, onDrained: () => drained++, onEnd: () => ended++ };
    near.write(data.subarray(0, 1 << 20));
    near.write(data.subarray(1 << 20));
    assert(near.queuedBytes > 0);
    await eventually("accepted", () => taken.length === 1);
    const far = taken[0]!;
    assertEquals(far.peerUser, Deno.uid());
    await eventually("all has come", () => got.length === data.length);
    assertEquals([near.queuedBytes, drained, ended], [0, 1, 0]);
    assert(got.every((byte, at) => byte === data[at]));
    far.close();
    await eventually("ended", () => ended === 1);
    near.write(data);
    listener.close();
  }
  await Deno.remove(folder, { recursive: true });
});

test("a flow that cannot move sends nothing by its number, which another file may have", async () => {
  await using turned = new TurnedEngine();
  const { engine, libc } = turned;
  const flow = engine.openFlow({ hostname: "127.0.0.1", port: 9 });
  // Broadcasts are not permitted.
  assertThrows(() => flow.move({ hostname: "255.255.255.255", port: 9 }), Error, "EACCES");
  const used: number[] = [];
  libc.sendMessages = (fd) => used.push(fd);
  flow.send(new Uint8Array(3));
  assertEquals(used, []);
});
