import { assert, assertEquals } from "@std/assert";
import { OpenFiles, shareLocalPorts, shareOpenFiles } from "../../lib/os/open_files.ts";
import type { ServiceKey, ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { randomFrom } from "../../tests/support/builders/seeded_random.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeNetwork } from "../../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { Forwarding } from "./forwarding.ts";
import type { SocketRoom } from "./socket_room.ts";

const SILENT_MS = 300_000;
const HOARDED_MS = 10_000;

/** Connections or flows without sockets. */
class Port {
  readonly key: ServicePortKey;
  /** When each was used for the last time, the oldest first. */
  used: number[] = [];
  /** For how long each that was closed had been silent. */
  closed: number[] = [];

  constructor(
    readonly room: SocketRoom,
    readonly now: () => number,
    readonly service: ServiceKey,
    readonly use: "connection" | "flow",
  ) {
    this.key = `${service}/${use}` as ServicePortKey;
  }

  get size(): number {
    return this.used.length;
  }

  get files(): number {
    return this.size * (this.use === "flow" ? 1 : 2);
  }

  hasSilent(silentMs: number): boolean {
    return this.size > 0 && this.used[0]! <= this.now() - silentMs;
  }

  closeSilent(count: number, silentMs = SILENT_MS): number {
    let closed = 0;
    for (; closed < count && this.hasSilent(silentMs); closed++) {
      this.closed.push(this.now() - this.used.shift()!);
      this.give();
    }
    return closed;
  }

  silentSince(): [] {
    return [];
  }

  close(): void {}

  /** The oldest ends by itself. */
  end(): void {
    if (this.used.shift() !== undefined) this.give();
  }

  /** The oldest has data. */
  touch(): void {
    if (this.used.shift() !== undefined) this.used.push(this.now());
  }

  give(): void {
    this.room.give(this);
    if (this.size === 0) this.room.leave(this);
  }
}

function filesOf(ports: readonly Port[], service: ServiceKey): number {
  return ports.reduce((sum, each) => each.service === service ? sum + each.files : sum, 0);
}

for (const [lacking, files, localPorts] of [["files", 100, 1000], ["ports", 500, 24]] as const) {
  Deno.test(`SocketRoom.take() is fair, and closes nothing in vain, without ${lacking}`, () => {
    let exchanges = 0;
    for (let seed = 1; seed <= 60; seed++) {
      const [random, clock] = [randomFrom(seed), new FakeClock()];
      const openFiles = new OpenFiles(files, localPorts);
      const { room } = new Forwarding(
        { clock, logger: new MemoryLogger(), network: new FakeNetwork(), openFiles },
        { udpTimeoutMs: 60_000 },
      );
      let now = clock.now();
      clock.now = () => now;
      const ports = ["ns/a", "ns/b", "ns/c"].flatMap((service) =>
        (["connection", "flow", "flow"] as const).map((use) =>
          new Port(room, () => now, service as ServiceKey, use)
        )
      );
      for (let step = 0; step < 200; step++) {
        const at = `seed ${seed}, step ${step}`;
        // The first ports are asked for more often, so some are much larger than others.
        const port = ports[Math.floor(ports.length * random() * random())]!;
        const action = random();
        now += Math.floor(random() * 3000);
        if (action < 0.1) port.end();
        else if (action < 0.2) port.touch();
        else exchanges += takeOne(room, { port, ports, lacking, at });
        const flows = ports.filter(({ use }) => use === "flow");
        assert(openFiles.open.traffic <= shareOpenFiles(files).traffic, at);
        assert(flows.reduce((sum, { size }) => sum + size, 0) <= shareLocalPorts(localPorts), at);
      }
      for (const port of ports) while (port.size > 0) port.end();
      assertEquals([openFiles.open.traffic, clock.pendingTimers], [0, 0]);
    }
    assert(exchanges > 300, `${exchanges} exchanges`);
  });
}

Deno.test("SocketRoom.take() keeps to the limit of ports where files are lacking, too", () => {
  const localPorts = 8;
  const openFiles = new OpenFiles(110, localPorts);
  const clock = new FakeClock();
  const { room } = new Forwarding(
    { clock, logger: new MemoryLogger(), network: new FakeNetwork(), openFiles },
    { udpTimeoutMs: 60_000 },
  );
  const port = (service: string, use: Port["use"]) =>
    new Port(room, () => clock.now(), service as ServiceKey, use);
  const take = (each: Port) => {
    if (!room.take(each)) return false;
    each.used.push(clock.now());
    if (each.size === 1) room.enter(each);
    return true;
  };
  const all = ["ns/a", "ns/b", "ns/c"].map((service) => ({
    flows: port(service, "flow"),
    connections: port(service, "connection"),
  }));
  const [flooded] = all;
  for (const { connections } of all) while (take(connections));
  clock.stall(HOARDED_MS);
  for (let count = 0; count < 100; count++) take(flooded!.flows);
  for (const { flows } of all) for (let count = 0; count < 100; count++) take(flows);
  const flows = all.reduce((sum, each) => sum + each.flows.size, 0);
  assert(flows > 1 && flows <= shareLocalPorts(localPorts), `${flows} flows`);
  assert(openFiles.open.traffic <= shareOpenFiles(110).traffic);
  for (const each of all) {
    for (const one of [each.flows, each.connections]) while (one.size > 0) one.end();
  }
});

Deno.test("SocketRoom.take() does not ask all forwarders for each datagram of a flood", () => {
  const openFiles = new OpenFiles(2000);
  const clock = new FakeClock();
  const { room } = new Forwarding(
    { clock, logger: new MemoryLogger(), network: new FakeNetwork(), openFiles },
    { udpTimeoutMs: 60_000 },
  );
  let asked = 0;
  const trafficOf = openFiles.trafficOf.bind(openFiles);
  openFiles.trafficOf = (...args) => {
    asked++;
    return trafficOf(...args);
  };
  const ports = Array.from(
    { length: 200 },
    (_, at) => new Port(room, () => clock.now(), `ns/s${at}` as ServiceKey, "flow"),
  );
  const take = (port: Port) => {
    if (!room.take(port)) return;
    port.used.push(clock.now());
    if (port.size === 1) room.enter(port);
  };
  for (const port of ports) take(port);
  const [flooded] = ports;
  for (let count = 0; count < 2000; count++) take(flooded!);
  asked = 0;
  for (let count = 0; count < 1000; count++) take(flooded!);
  assert(asked < 20_000, `${asked} times`);
  for (const port of ports) while (port.size > 0) port.end();
});

/** Takes one more, and checks what was closed for it. Returns 1 for an exchange with another port. */
function takeOne(room: SocketRoom, { port, ports, lacking, at }: {
  readonly port: Port;
  readonly ports: readonly Port[];
  readonly lacking: "files" | "ports";
  readonly at: string;
}): number {
  const [isFlow, own] = [port.use === "flow", port.size];
  const size = isFlow ? 1 : 2;
  const counted = ports.filter(({ use }) => lacking === "files" || use === "flow");
  const mayBe = counted.filter((each) => {
    if (each === port) return false;
    const [its, mine] = each.service === port.service
      ? [each.files, port.files]
      : [filesOf(counted, each.service), filesOf(counted, port.service)];
    const isSilent = each.hasSilent(each.use === "flow" ? 0 : HOARDED_MS);
    return isSilent && its >= mine + 2 * size;
  });
  const most = Math.max(0, ...mayBe.map(({ files }) => files));
  const before = new Map(ports.map((each) => [each, each.files]));
  const isTaken = room.take(port);
  const victims = ports.filter(({ closed }) => closed.length > 0);
  if (!isTaken) assertEquals(victims, [], `${at}: closed in vain`);
  assert(victims.length <= 1, at);
  const [victim] = victims;
  const silentMs = Math.min(...victim?.closed ?? []);
  if (victim === port) {
    assertEquals(port.size, own - 1, at);
    assert(silentMs >= (isFlow ? 0 : SILENT_MS), at);
    if (isFlow) assertEquals(mayBe, [], `${at}: others are larger`);
  } else if (victim) {
    assert(mayBe.includes(victim), `${at}: ${victim.key} for ${port.key}`);
    assertEquals(before.get(victim), most, `${at}: the largest`);
    assert(silentMs >= (victim.use === "flow" ? 0 : HOARDED_MS), at);
    assertEquals(victim.closed.length, Math.ceil(size / (victim.use === "flow" ? 1 : 2)), at);
  } else if (!isTaken) assertEquals(mayBe, [], `${at}: one had to end`);
  for (const each of victims) each.closed = [];
  if (isTaken) {
    port.used.push(port.now());
    if (port.size === 1) room.enter(port);
  }
  return victim !== undefined && victim !== port ? 1 : 0;
}
