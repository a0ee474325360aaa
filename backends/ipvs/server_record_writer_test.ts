import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { MemoryRecordFile } from "../../tests/support/fakes/memory_record_file.ts";
import type { DrainingServer } from "./drain_list.ts";
import { parseServerRecord } from "./server_record.ts";
import { ServerRecordWriter } from "./server_record_writer.ts";
import { realServerKey, serverKey } from "./virtual_server.ts";

const SERVER = serverKey({ protocol: "TCP", address: parseIpAddress("10.96.0.1"), port: 80 });
const REAL = realServerKey(parseIpAddress("10.0.0.1"), 8080);
const PORTS = {
  addresses: new Set([parseIpAddress("192.0.2.1")]),
  ports: new Set(["tcp 30080"]),
};
const MINUTE = 60_000;

/** A keeper with one real server that drains since the beginning of its clock, by default. */
class Stage {
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly keeper: ServerRecordWriter;
  drains: DrainingServer[] = [{ server: SERVER, real: REAL, sinceMs: 0 }];

  constructor(readonly file = new MemoryRecordFile()) {
    this.keeper = new ServerRecordWriter({ clock: this.clock, logger: this.logger, file });
    this.keeper.follow(() => this.drains);
  }

  /** Since when the real server drains, milliseconds ago; as another process reads it. */
  async readAfter(ms: number): Promise<number | undefined> {
    const next = new Stage(this.file);
    next.clock.jump(this.clock.wallNow() - next.clock.wallNow() + ms);
    await next.keeper.open();
    const beganAt = next.keeper.beganAt(SERVER, REAL);
    return beganAt === undefined ? undefined : next.clock.now() - beganAt;
  }
}

Deno.test("ServerRecordWriter records for the next run when the drain of a real server began", async () => {
  const stage = new Stage();
  await stage.keeper.open();
  stage.keeper.touch();
  await stage.clock.advance(5 * MINUTE);
  assertEquals(stage.file.saves, 1);
  assertEquals(await stage.readAfter(3 * MINUTE), 8 * MINUTE);
  await stage.keeper.close();
});

Deno.test("ServerRecordWriter treats a start in the future as now", async () => {
  const stage = new Stage();
  stage.keeper.touch();
  await stage.clock.advance(5 * MINUTE);
  assertEquals(await stage.readAfter(-60 * MINUTE), 0);
  await stage.keeper.close();
});

for (const step of [-50 * 365 * 24 * 60 * MINUTE, 50 * 365 * 24 * 60 * MINUTE]) {
  Deno.test(`ServerRecordWriter writes again when the clock is set while it runs, by ${step} ms`, async () => {
    const stage = new Stage();
    stage.keeper.touch();
    await stage.clock.advance(5 * MINUTE);
    stage.keeper.checkClock();
    await stage.clock.advance(5 * MINUTE);
    assertEquals(stage.file.saves, 1, "nothing was set");
    stage.clock.jump(step);
    stage.keeper.checkClock();
    await stage.clock.advance(MINUTE);
    assertEquals(stage.file.saves, 2);
    assertEquals(await stage.readAfter(MINUTE), 12 * MINUTE);
    await stage.keeper.close();
  });
}

Deno.test("ServerRecordWriter writes once for many changes, and skips unchanged content", async () => {
  const stage = new Stage();
  for (let change = 0; change < 1_000; change++) stage.keeper.touch();
  assertEquals(stage.file.saves, 0, "nothing in the way of who tells");
  await stage.clock.advance(10_000);
  assertEquals(stage.file.saves, 1);
  stage.keeper.touch();
  await stage.clock.advance(10_000);
  assertEquals(stage.file.saves, 1);
  assertEquals(stage.clock.pendingTimers, 0);
});

Deno.test("ServerRecordWriter writes nothing if there is nothing to know", async () => {
  const stage = new Stage();
  await stage.keeper.open();
  stage.drains = [];
  stage.keeper.setNodePorts(() => ({ addresses: new Set(), ports: new Set() }));
  stage.keeper.settled();
  await stage.keeper.close();
  assertEquals([stage.file.saves, stage.file.text], [0, undefined]);
});

Deno.test("ServerRecordWriter.close() writes pending content, and sets no timer", async () => {
  const stage = new Stage();
  stage.keeper.touch();
  await stage.keeper.close();
  assertEquals([stage.file.saves, stage.clock.pendingTimers], [1, 0]);
  stage.keeper.touch();
  assertEquals(stage.clock.pendingTimers, 0);
});

Deno.test("ServerRecordWriter.settled() forgets entries that the kernel does not hold", async () => {
  const stage = new Stage();
  stage.keeper.setNodePorts(() => PORTS);
  await stage.keeper.close();
  const next = new Stage(stage.file);
  await next.keeper.open();
  assertEquals(next.keeper.earlierNodePorts, PORTS);
  next.drains = [];
  next.keeper.touch();
  await next.clock.advance(10_000);
  const { nodePorts } = parseServerRecord(next.file.text ?? "");
  assertEquals(nodePorts, PORTS, "nothing was written to the kernel yet");
  next.keeper.setNodePorts(() => ({ addresses: new Set(), ports: new Set() }));
  next.keeper.settled();
  assertEquals(next.keeper.earlierNodePorts.addresses.size, 0);
  assertEquals(next.keeper.beganAt(SERVER, REAL), undefined);
  await next.keeper.close();
  const { drains, nodePorts: { addresses } } = parseServerRecord(next.file.text ?? "");
  assertEquals([drains.length, addresses.size], [0, 0]);
});

Deno.test("ServerRecordWriter renames a file that it cannot parse, logs it, and starts a new one", async () => {
  const stage = new Stage();
  stage.file.text = '{"version":1,"drains":[["-t 10.9';
  await stage.keeper.open();
  assertEquals(stage.file.aside, '{"version":1,"drains":[["-t 10.9');
  const [line] = stage.logger.lines;
  assertEquals([line?.level, line?.fields["movedTo"]], ["warn", "/state/ipvs.ipv4.json.broken"]);
  stage.keeper.touch();
  await stage.keeper.close();
  assertEquals(parseServerRecord(stage.file.text ?? "").drains.length, 1);
  assertEquals(stage.logger.lines.length, 1);
});

Deno.test("ServerRecordWriter reports once that it cannot write, continues trying, and says when it can", async () => {
  const stage = new Stage();
  stage.file.problem = new Error("Read-only file system (os error 30)");
  await stage.keeper.open();
  for (let minute = 0; minute < 10; minute++) {
    stage.keeper.touch();
    await stage.clock.advance(MINUTE);
  }
  const [unread, unwritten, ...more] = stage.logger.lines;
  assertEquals(unread?.message.includes("Cannot read"), true);
  assertEquals(unwritten?.fields, {
    file: "/state/ipvs.ipv4.json",
    error: "Read-only file system (os error 30)",
    cure: "make it writable, or give another one with --state-dir",
  });
  assertEquals(more, []);
  stage.file.problem = undefined;
  await stage.clock.advance(2 * MINUTE);
  assertEquals([stage.file.saves, stage.logger.lines.at(-1)?.level], [1, "info"]);
  await stage.keeper.close();
});
