import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { type Cidr, parseCidr } from "../../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../../../lib/net/ip_address.ts";
import { CommandError } from "../../../lib/os/command_runner.ts";
import { serviceKey } from "../../../lib/proxy/service_port_name.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeHost } from "../../../tests/support/fakes/fake_host.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import {
  createMemoryStore,
  ListedAddresses,
} from "../../../tests/support/drivers/listed_addresses.ts";
import { type AddressStore, createFileStore } from "./address_store.ts";
import type { AddressMode, WantedAddress } from "./addresses.ts";

interface Options {
  readonly family?: IpFamily;
  readonly mode?: AddressMode;
}

const RANGE = parseCidr("10.96.0.0/12");
const RANGE6 = parseCidr("fd00:96::/112");

/** One machine over several runs of the program. */
class Machine {
  readonly host = new FakeHost();
  readonly logger = new MemoryLogger();
  store: AddressStore = createMemoryStore();

  create({ family = "IPv4", mode }: Options = {}): ListedAddresses {
    return new ListedAddresses(
      {
        runner: this.host.runner,
        network: this.host.network,
        clock: new FakeClock(),
        logger: this.logger,
        store: this.store,
      },
      family,
      mode,
    );
  }

  /** A run of the program up to its first `acquire`. */
  async start(options: Options = {}): Promise<ListedAddresses> {
    const addresses = this.create(options);
    await addresses.start();
    return addresses;
  }

  get lo(): string[] {
    return [...this.host.lo];
  }

  get processes(): number {
    return this.host.runner.calls.length;
  }

  async recorded(): Promise<string[]> {
    const { addresses, routes } = await this.store.load();
    return [...addresses, ...routes];
  }

  warnings(): string[] {
    return this.logger.lines.filter(({ level }) => level === "warn").map((line) => line.message);
  }
}

function clusterIp(text: string, name = text): WantedAddress {
  const service = serviceKey({ namespace: "ns1", name });
  return { address: parseIpAddress(text), role: "ClusterIP", service };
}

function externalIp(text: string): WantedAddress {
  return { ...clusterIp(text), role: "ExternalIP" };
}

/** The outcome of acquiring, in a form that reads well in a comparison. */
async function acquire(
  addresses: ListedAddresses,
  ...wanted: WantedAddress[]
): Promise<Record<string, string>> {
  const found = await addresses.acquireList(wanted);
  return Object.fromEntries([...found].map(([address, place]) => {
    if (place.kind === "standIn") return [address, place.address];
    return [address, place.kind === "unavailable" ? place.reason : place.kind];
  }));
}

function ips(...texts: string[]): IpAddress[] {
  return texts.map(parseIpAddress);
}

Deno.test("acquire() adds addresses to lo in one batch, and release() removes them in one", async () => {
  const machine = new Machine();
  const addresses = await machine.start();
  const before = machine.processes;
  const found = await acquire(addresses, clusterIp("10.96.0.1"), clusterIp("10.96.0.2"));
  assertEquals(found, { "10.96.0.1": "local", "10.96.0.2": "local" });
  assertEquals(machine.lo, ["10.96.0.1", "10.96.0.2"]);
  assertEquals(machine.processes - before, 1);
  assertEquals(await addresses.releaseList(ips("10.96.0.1", "10.96.0.2", "10.96.0.9")), 2);
  assertEquals(machine.lo, []);
  assertEquals(machine.processes - before, 2);
  assertEquals(await machine.recorded(), []);
});

Deno.test("acquire() asks nothing of the machine for addresses that it has", async () => {
  const machine = new Machine();
  machine.host.interfaces.set(parseIpAddress("192.168.7.1"), "eth0");
  machine.host.lo.add(parseIpAddress("10.96.0.10"));
  const addresses = await machine.start();
  const before = machine.processes;
  const wanted = [clusterIp("127.96.0.1"), externalIp("192.168.7.1"), clusterIp("10.96.0.10")];
  assertEquals(Object.values(await acquire(addresses, ...wanted)), ["local", "local", "local"]);
  assertEquals(machine.processes, before);
  assertEquals(addresses.owns(parseIpAddress("10.96.0.10")), false);
  assertEquals(await addresses.releaseList(wanted.map(({ address }) => address)), 0);
  await addresses.releaseUnclaimed();
  await addresses.cleanup();
  assertEquals(machine.lo, ["10.96.0.10"]);
});

for (const mayChange of [false, true]) {
  const rights = mayChange ? "with" : "without";
  Deno.test(`acquire() uses a loopback address itself while no file is free, ${rights} rights`, async () => {
    const machine = new Machine();
    machine.host.mayChange = mayChange;
    const addresses = await machine.start();
    const { network } = machine.host;
    network.listenUdp = () => {
      throw new Error("Too many open files (os error 24)");
    };
    const found = await acquire(addresses, clusterIp("127.80.18.1"));
    assertEquals([found, machine.lo], [{ "127.80.18.1": "local" }, []]);
  });
}

Deno.test("acquire() does not claim an address that another program adds at the same moment", async () => {
  const machine = new Machine();
  const addresses = await machine.start();
  machine.host.runner.failNext({
    stderr: "RTNETLINK answers: File exists\nCommand failed -:1\n",
    code: 1,
  });
  assertEquals(await acquire(addresses, clusterIp("10.96.0.1")), { "10.96.0.1": "local" });
  assertEquals(await machine.recorded(), []);
});

Deno.test("acquire() adds an address again after another program flushed lo", async () => {
  const machine = new Machine();
  const addresses = await machine.start();
  await acquire(addresses, clusterIp("10.96.0.1"));
  machine.host.lo.clear();
  assertEquals(await acquire(addresses, clusterIp("10.96.0.1")), { "10.96.0.1": "local" });
  assertEquals(machine.lo, ["10.96.0.1"]);
});

Deno.test("acquire() adds nothing that it cannot record", async () => {
  const machine = new Machine();
  const addresses = await machine.start();
  const store = machine.store;
  const save = store.save;
  store.save = () => Promise.reject(new Error("No space left on device"));
  const found = await acquire(addresses, clusterIp("10.96.0.1"));
  assertStringIncludes(found["10.96.0.1"] ?? "", "No space left on device");
  assertEquals(machine.lo, []);
  store.save = save;
  assertEquals(await acquire(addresses, clusterIp("10.96.0.1")), { "10.96.0.1": "local" });
});

Deno.test("release() removes unwanted leftovers of a batch with unknown outcome", async () => {
  const machine = new Machine();
  const addresses = await machine.start();
  await acquire(addresses, clusterIp("10.96.0.2"));
  machine.host.runner.failNext("timeout", { carriedOut: true });
  await assertRejects(() => acquire(addresses, clusterIp("10.96.0.1")), CommandError);
  assertEquals(await addresses.releaseList(ips("10.96.0.2")), 2);
  assertEquals(machine.lo, []);
});

Deno.test("release() retries failed removals, unless the address is wanted again", async () => {
  const machine = new Machine();
  const addresses = await machine.start();
  await acquire(addresses, clusterIp("10.96.0.1"), clusterIp("10.96.0.2"), clusterIp("10.96.0.3"));
  machine.host.runner.failNext({
    stderr:
      "RTNETLINK answers: Device or resource busy\nCommand failed -:1\nRTNETLINK answers: Device or resource busy\nCommand failed -:2\n",
    code: 1,
  });
  assertEquals(await addresses.releaseList(ips("10.96.0.1", "10.96.0.2")), 0);
  assertEquals(machine.warnings(), ["Cannot remove an address", "Cannot remove an address"]);
  await acquire(addresses, clusterIp("10.96.0.1"));
  assertEquals(await addresses.releaseList(ips("10.96.0.3")), 2);
  assertEquals(machine.lo, ["10.96.0.1"]);
});

Deno.test("start() forgets recorded addresses that the machine lacks, as after a reboot", async () => {
  const machine = new Machine();
  await acquire(await machine.start(), clusterIp("10.96.0.1"), clusterIp("10.96.0.2"));
  machine.host.lo.clear();
  machine.host.interfaces.set(parseIpAddress("10.96.0.2"), "eth0");
  const addresses = await machine.start();
  assertEquals(await machine.recorded(), []);
  assertEquals(addresses.owns(parseIpAddress("10.96.0.2")), false);
});

Deno.test("acquire() gives stand-ins if nothing may be added, the same ones in the next run", async () => {
  const machine = new Machine();
  machine.host.mayChange = false;
  const wanted = [clusterIp("10.96.0.1", "web"), clusterIp("10.96.0.2", "dns")];
  const first = await machine.start();
  const found = await acquire(first, ...wanted);
  for (const standIn of Object.values(found)) assert(/^127\.1(1[2-9]|2[0-7])\./.test(standIn));
  assert(found["10.96.0.1"] !== found["10.96.0.2"]);
  const second = await machine.start();
  assertEquals(await acquire(second, ...wanted.toReversed()), found);
  assertEquals(machine.lo, []);
  assertStringIncludes(second.summary, "Operation not permitted");
});

Deno.test("acquire() gives ::1 to all cluster IPs of IPv6 if nothing may be added", async () => {
  const machine = new Machine();
  machine.host.mayChange = false;
  const addresses = await machine.start({ family: "IPv6" });
  const found = await acquire(addresses, clusterIp("fd00:96::1"), clusterIp("fd00:96::2"));
  assertEquals(Object.values(found), ["::1", "::1"]);
});

Deno.test("acquire() says how to have an external address if nothing may be added", async () => {
  const machine = new Machine();
  machine.host.mayChange = false;
  const found = await acquire(await machine.start(), externalIp("203.0.113.1"));
  assertStringIncludes(found["203.0.113.1"] ?? "", "Cannot make ExternalIP 203.0.113.1 local");
  assertStringIncludes(found["203.0.113.1"] ?? "", "CAP_NET_ADMIN");
});

for (const kind of ["not-found", "not-permitted", "timeout"] as const) {
  Deno.test(`start() continues with stand-ins when ip is ${kind}`, async () => {
    const machine = new Machine();
    machine.host.runner.failNext(kind);
    const addresses = await machine.start();
    const found = await acquire(addresses, clusterIp("10.96.0.1"));
    assert(found["10.96.0.1"]?.startsWith("127.1"), found["10.96.0.1"]);
    assertStringIncludes(addresses.summary, kind);
  });
}

Deno.test("acquire() keeps a Service's stand-in when its cluster IP changes", async () => {
  const machine = new Machine();
  machine.host.mayChange = false;
  const addresses = await machine.start();
  const before = await acquire(addresses, clusterIp("10.96.0.1", "web"));
  const after = await acquire(addresses, clusterIp("10.96.0.2", "web"));
  assertEquals(after["10.96.0.2"], before["10.96.0.1"]);
  await addresses.releaseList(ips("10.96.0.1"));
  const again = await acquire(addresses, clusterIp("10.96.0.3", "web"));
  assertEquals(again["10.96.0.3"], before["10.96.0.1"]);
});

Deno.test("acquire() keeps the stand-ins of Services whose keys hash to one, after a restart as well", async () => {
  const machine = new Machine();
  machine.host.mayChange = false;
  const first = await machine.start();
  const older = clusterIp("10.96.0.1", "web-61");
  // The first one in the order of keys is the last one that comes.
  const newer = clusterIp("10.96.0.2", "web-172");
  const { "10.96.0.1": home = "" } = await acquire(first, older);
  assertEquals((await machine.store.load()).standIns.size, 0);
  const { "10.96.0.2": next = "" } = await acquire(first, newer);
  assert(next !== home && next.startsWith("127.1"), next);
  const places = { "10.96.0.1": home, "10.96.0.2": next };
  for (const wanted of [[older, newer], [newer, older]]) {
    assertEquals(await acquire(await machine.start(), ...wanted), places);
  }
  const last = await machine.start();
  assertEquals(await acquire(last, newer), { "10.96.0.2": next }, "also without the older one");
  await last.releaseUnclaimed();
  // Another cluster IP of a Service does not move it.
  assertEquals(await acquire(last, clusterIp("10.96.0.3", "web-172")), { "10.96.0.3": next });
  await last.releaseList(ips("10.96.0.2"));
  assertEquals((await machine.store.load()).standIns.size, 1);
  await last.releaseList(ips("10.96.0.3"));
  assertEquals((await machine.store.load()).standIns.size, 0);
});

Deno.test("releaseUnclaimed() forgets the stand-ins of Services that were removed meanwhile", async () => {
  const machine = new Machine();
  machine.host.mayChange = false;
  const first = await machine.start();
  await acquire(first, clusterIp("10.96.0.1", "web-61"));
  await acquire(first, clusterIp("10.96.0.2", "web-172"));
  const second = await machine.start();
  await second.releaseUnclaimed();
  assertEquals((await machine.store.load()).standIns.size, 0);
});

Deno.test("acquire() leaves the stand-in of an address that goes to another Service", async () => {
  const machine = new Machine();
  machine.host.mayChange = false;
  const addresses = await machine.start();
  const [home = ""] = Object.values(await acquire(addresses, clusterIp("10.96.0.1", "web-61")));
  await acquire(addresses, clusterIp("10.96.0.1", "dns"));
  assertEquals(await acquire(addresses, clusterIp("10.96.0.2", "web-172")), { "10.96.0.2": home });
});

Deno.test("mode none adds nothing even if it may", async () => {
  const machine = new Machine();
  const addresses = await machine.start({ mode: "none" });
  assert((await acquire(addresses, clusterIp("10.96.0.1")))["10.96.0.1"]?.startsWith("127."));
  assertEquals(machine.processes, 0);
});

Deno.test("acquire() gives no stand-in that is in use, or that another Service has", async () => {
  const machine = new Machine();
  machine.host.mayChange = false;
  const { "10.96.0.1": home = "" } = await acquire(
    await machine.start(),
    clusterIp("10.96.0.1", "web"),
  );
  const addresses = await machine.start();
  const used = await acquire(addresses, clusterIp(home), clusterIp("10.96.0.1", "web"));
  const next = used["10.96.0.1"] ?? "";
  assert(next !== home && next.startsWith("127.1"), next);
  // The next address is taken by the first Service now.
  await addresses.releaseList(ips(home));
  const found = await acquire(addresses, clusterIp(next, "dns"), clusterIp("10.96.0.3", "web"));
  assertEquals(found["10.96.0.3"], home);
});

Deno.test("acquire() gives each of 2,000 Services a stand-in of its own, spread over the range", async () => {
  const machine = new Machine();
  machine.host.mayChange = false;
  const wanted = Array.from(
    { length: 2_000 },
    (_, index) => clusterIp(`10.96.${index >> 8}.${index & 255}`),
  );
  const found = Object.values(await acquire(await machine.start(), ...wanted));
  assertEquals(new Set(found).size, 2_000);
  assertEquals(new Set(found.map((each) => each.split(".")[1])).size, 16);
});

Deno.test("acquire() is not fooled if every bind succeeds (ip_nonlocal_bind=1)", async () => {
  const machine = new Machine();
  machine.host.interfaces.set(parseIpAddress("192.168.7.1"), "eth0");
  machine.host.nonlocalBind.IPv4 = "1";
  const addresses = await machine.start();
  await acquire(addresses, clusterIp("10.96.0.1"), externalIp("192.168.7.1"));
  assertEquals(machine.lo, ["10.96.0.1"]);
});

Deno.test("acquire() names a state directory that it cannot write to, once, and adds nothing", async () => {
  const folder = await Deno.makeTempDir();
  try {
    // Permissions do not restrict root; a file in the folder's place does.
    const directory = `${folder}/state`;
    const machine = new Machine();
    machine.store = createFileStore({ directory, family: "IPv4" });
    const addresses = await machine.start();
    await Deno.remove(directory, { recursive: true });
    await Deno.writeTextFile(directory, "");
    for (let round = 0; round < 3; round++) {
      await acquire(addresses, clusterIp("10.96.0.1"));
      assertEquals(machine.lo, []);
    }
    const warnings = machine.logger.lines.filter(({ level }) => level === "warn");
    assertEquals(warnings.map(({ fields }) => fields.file), [`${directory}/addresses.ipv4.json`]);
    await Deno.remove(directory);
    await acquire(addresses, clusterIp("10.96.0.1"));
    assertEquals(await machine.recorded(), machine.lo);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

const WAYS: readonly [string, Options, count: number, ranges: Cidr[]][] = [
  ["IPv4 addresses added to lo, one by one", {}, 1_000, [RANGE]],
  ["local route for 10.96.0.0/12", {}, 1_001, [RANGE]],
  ["IPv4 addresses added to lo, one by one", {}, 50_000, []],
  ["IPv4 addresses added to lo, one by one", { mode: "each" }, 50_000, [RANGE]],
  ["local route for 10.96.0.0/12", { mode: "anyip" }, 1, [RANGE]],
  ["IPv4 addresses added to lo, one by one", { mode: "anyip" }, 1, [RANGE6]],
  ["an address of 127.112.0.0/12 in place of each", { mode: "none" }, 5_000, [RANGE]],
];

for (const [text, options, count, serviceCidrs] of WAYS) {
  const given = `mode ${options.mode ?? "auto"}, ${count} addresses and ranges ${serviceCidrs}`;
  Deno.test(`configure() with ${given}: ${text}`, async () => {
    const addresses = await new Machine().start(options);
    await addresses.configure(serviceCidrs, count);
    assertStringIncludes(addresses.summary, text);
  });
}

async function withRange(
  machine: Machine,
  { range = RANGE, ...options }: Options & { range?: Cidr } = {},
): Promise<ListedAddresses> {
  const addresses = await machine.start({ mode: "anyip", ...options });
  await addresses.configure([range], 1);
  return addresses;
}

Deno.test("configure() crosses 1000 addresses by adding the route first, and comes back below 500", async () => {
  const machine = new Machine();
  const addresses = await machine.start();
  await addresses.configure([RANGE], 2);
  await acquire(addresses, clusterIp("10.96.0.1"), externalIp("203.0.113.1"));
  await addresses.releaseUnclaimed();
  const log = machine.host.batchLines.length;

  assertEquals(await addresses.configure([RANGE], 1_001), false);
  assertEquals(machine.host.batchLines.slice(log), [
    "route add local 10.96.0.0/12 dev lo",
    "addr del 10.96.0.1/32 dev lo",
  ]);
  assertEquals(await addresses.configure([RANGE], 600), false);
  assertEquals(machine.host.batchLines.length, log + 2);
  assertEquals(await addresses.configure([RANGE], 10), false);
  assertEquals(machine.host.batchLines.slice(log + 2), [
    "addr add 10.96.0.1/32 dev lo scope host",
    "route del local 10.96.0.0/12 dev lo",
  ]);
  assertEquals(machine.lo, ["203.0.113.1", "10.96.0.1"]);
});

Deno.test("a run with few addresses takes over from one with a route although its first additions fail", async (t) => {
  for (const carriedOut of [false, true]) {
    await t.step(carriedOut ? "carried out" : "not carried out", async () => {
      const machine = new Machine();
      await acquire(await withRange(machine), clusterIp("10.96.0.1"));
      const addresses = await machine.start();
      await addresses.configure([RANGE], 1);
      machine.host.runner.failNext("timeout", { carriedOut });
      await assertRejects(() => acquire(addresses, clusterIp("10.96.0.1")), CommandError);
      assertEquals(await acquire(addresses, clusterIp("10.96.0.1")), { "10.96.0.1": "local" });
      await addresses.releaseUnclaimed();
      assertEquals([machine.lo, [...machine.host.localRoutes]], [["10.96.0.1"], []]);
      assertEquals(await machine.recorded(), ["10.96.0.1"]);
      assertEquals(await addresses.releaseList(ips("10.96.0.1")), 1);
    });
  }
});

Deno.test("configure() continues with what was interrupted", async () => {
  const machine = new Machine();
  const addresses = await machine.start();
  const { runner } = machine.host;
  await acquire(addresses, clusterIp("10.96.0.1"));
  await addresses.releaseUnclaimed();
  const many = [[RANGE], 1_001] as const;
  const few = [[RANGE], 10] as const;

  // After the look at the routes and the addition of one.
  runner.failCall(machine.processes + 3, "timeout");
  await assertRejects(() => addresses.configure(...many), CommandError);
  assertEquals(machine.lo, ["10.96.0.1"]);
  await addresses.configure(...many);
  assertEquals(machine.lo, []);

  runner.failNext("timeout");
  await assertRejects(() => addresses.configure(...few), CommandError);
  assertEquals([machine.lo, [...machine.host.localRoutes]], [[], [RANGE]]);
  await addresses.configure(...few);
  assertEquals([machine.lo, [...machine.host.localRoutes]], [["10.96.0.1"], []]);
});

Deno.test("configure() adopts the route of an earlier run, and leaves a foreign one", async () => {
  const other = parseCidr("10.200.0.0/16");
  const machine = new Machine();
  machine.host.localRoutes.add(other);
  await withRange(machine);
  const addresses = await machine.start({ mode: "anyip" });
  await addresses.configure([RANGE, other], 1);
  assertEquals(await machine.recorded(), [RANGE]);
  assertEquals(Object.values(await acquire(addresses, clusterIp("10.200.0.1"))), ["local"]);
  assertEquals((await addresses.cleanup()).removed, ["local route for 10.96.0.0/12"]);
  assertEquals([...machine.host.localRoutes], [other]);
});

Deno.test("configure() of IPv6 allows binds by a sysctl, and puts it back with the route", async () => {
  const machine = new Machine();
  const addresses = await withRange(machine, { family: "IPv6", range: RANGE6 });
  assertEquals(machine.host.nonlocalBind.IPv6, "1");
  assertEquals(await acquire(addresses, clusterIp("fd00:96::1")), { "fd00:96::1": "local" });
  assertEquals(machine.lo, []);

  const next = await machine.start({ family: "IPv6" });
  await next.configure([RANGE6], 1);
  assertEquals(await acquire(next, clusterIp("fd00:96::1")), { "fd00:96::1": "local" });
  await next.releaseUnclaimed();
  assertEquals(machine.host.nonlocalBind.IPv6, "0");
  assertEquals(machine.lo, ["fd00:96::1"]);
});

Deno.test("configure() of IPv6 falls back to one each if the sysctl is read-only", async () => {
  const machine = new Machine();
  machine.host.runner.on("sysctl -w", {
    code: 1,
    stderr: 'sysctl: permission denied on key "net.ipv6.ip_nonlocal_bind"\n',
  });
  const addresses = await withRange(machine, { family: "IPv6", range: RANGE6 });
  assertEquals([...machine.host.localRoutes], []);
  assertEquals(await acquire(addresses, clusterIp("fd00:96::1")), { "fd00:96::1": "local" });
  assertEquals(machine.lo, ["fd00:96::1"]);
  assertEquals((await addresses.cleanup()).failed, [], "nothing of the sysctl is recorded");
});

Deno.test("configure() leaves the sysctl alone if it is set already", async () => {
  const machine = new Machine();
  machine.host.nonlocalBind.IPv6 = "1";
  const addresses = await withRange(machine, { family: "IPv6", range: RANGE6 });
  await addresses.cleanup();
  assertEquals(machine.host.nonlocalBind.IPv6, "1");
});

Deno.test("acquire() adds no external address while the routes cannot be read", async () => {
  const machine = new Machine();
  const addresses = await machine.start();
  machine.host.runner.failNext({ stderr: "Dump terminated\n", code: 1 });
  const found = await acquire(addresses, externalIp("203.0.113.1"), clusterIp("10.96.0.1"));
  assertStringIncludes(found["203.0.113.1"] ?? "", "Dump terminated");
  assertEquals(found["10.96.0.1"], "local");
});

Deno.test("cleanup() needs no start, removes only recorded addresses, and then the record", async () => {
  const machine = new Machine();
  machine.host.lo.add(parseIpAddress("10.96.0.9"));
  const killed = await withRange(machine, { family: "IPv6", range: RANGE6 });
  await acquire(killed, externalIp("fd00:5::1"), externalIp("fd00:5::2"));
  machine.host.lo.delete(parseIpAddress("fd00:5::1"));
  assertEquals(await machine.create({ family: "IPv6" }).cleanup(), {
    removed: [
      "address fd00:5::2 on lo",
      "local route for fd00:96::/112",
      "net.ipv6.ip_nonlocal_bind, which is 0 again",
    ],
    failed: [],
  });
  assertEquals(machine.lo, ["10.96.0.9"]);
  assertEquals(await machine.recorded(), []);
  assertEquals(await machine.create({ family: "IPv6" }).cleanup(), { removed: [], failed: [] });
});

Deno.test("cleanup() names each thing that the machine refuses to give back", async () => {
  const machine = new Machine();
  await acquire(await withRange(machine), externalIp("203.0.113.1"));
  machine.host.mayChange = false;
  assertEquals((await machine.create().cleanup()).failed, [
    "address 203.0.113.1 on lo: RTNETLINK answers: Operation not permitted",
    "local route for 10.96.0.0/12: RTNETLINK answers: Operation not permitted",
  ]);
});

Deno.test("an invalid record is renamed and logged, not used", async () => {
  const machine = new Machine();
  let aside = 0;
  machine.store = {
    ...machine.store,
    load: () => Promise.reject(new SyntaxError("cut off")),
    setAside: () => Promise.resolve(`aside ${++aside}`),
  };
  const addresses = await machine.start();
  assertEquals(aside, 1);
  assertEquals(machine.warnings().length, 1);
  assertEquals(await acquire(addresses, clusterIp("10.96.0.1")), { "10.96.0.1": "local" });
});

Deno.test("a record that cannot be read is not overwritten: nothing is added", async () => {
  const machine = new Machine();
  machine.store = {
    ...machine.store,
    load: () => Promise.reject(new Deno.errors.PermissionDenied("not yours")),
    save: () => Promise.reject(new Error("must not be called")),
  };
  const addresses = await machine.start();
  assertStringIncludes(addresses.summary, "not yours");
  assertEquals(machine.processes, 0);
  assertStringIncludes((await addresses.cleanup()).failed[0] ?? "", "not yours");
});

Deno.test("probe() tries each method, reports those that work, and leaves nothing behind", async () => {
  for (const family of ["IPv4", "IPv6"] as const) {
    const machine = new Machine();
    const works = await machine.create({ family }).probe();
    assertEquals(works.map(({ available }) => available), [true, true, true]);
    assertEquals(machine.lo, []);
    assertEquals([...machine.host.localRoutes], []);
    assertEquals(machine.host.nonlocalBind.IPv6, "0");
    assertEquals(await machine.recorded(), []);
    machine.host.mayChange = false;
    const refused = await machine.create({ family }).probe();
    assertEquals(refused.map(({ available }) => available), [false, false, true]);
    assertEquals(refused.some(({ required }) => required), false);
    assertStringIncludes(refused[0]?.cure ?? "", "CAP_NET_ADMIN");
  }
});

Deno.test("probe() of a running proxy leaves its addresses and routes", async () => {
  const machine = new Machine();
  const addresses = await withRange(machine);
  await acquire(addresses, clusterIp("10.96.0.1"), externalIp("203.0.113.1"));
  await addresses.probe();
  assertEquals([...machine.host.localRoutes], [RANGE]);
  assertEquals(machine.lo, ["203.0.113.1"]);
});

/** A run that takes every way once. Errors are what its caller would try again, here: not at all. */
async function eventfulRun(machine: Machine): Promise<void> {
  const addresses = machine.create({ family: "IPv6" });
  const steps: (() => Promise<unknown>)[] = [
    () => addresses.start(),
    () => addresses.configure([RANGE6], 2),
    () => addresses.acquireList([clusterIp("fd00:96::1"), externalIp("fd00:5::1")]),
    () => addresses.releaseUnclaimed(),
    () => addresses.configure([RANGE6], 2_000),
    () => addresses.acquireList([clusterIp("fd00:96::2")]),
    () => addresses.releaseList(ips("fd00:96::1")),
    () => addresses.configure([RANGE6], 2),
  ];
  for (const step of steps) await step().catch(() => {});
}

Deno.test("whatever command of a run fails, in whatever way, the next run and cleanup() find all of it", async () => {
  const calm = new Machine();
  await eventfulRun(calm);
  for (let n = 1; n <= calm.processes; n++) {
    for (const failure of ["timeout", "not-found", "failed", "killed"] as const) {
      for (const carriedOut of failure === "not-found" ? [false] : [false, true]) {
        const machine = new Machine();
        machine.host.runner.failCall(n, failure, { carriedOut });
        await eventfulRun(machine);
        const what = `command ${n} fails as ${JSON.stringify(failure)}, carried out: ${carriedOut}`;
        const next = await machine.start({ family: "IPv6" });
        const found = await acquire(next, clusterIp("fd00:96::2"), externalIp("fd00:5::2"));
        await next.releaseUnclaimed();
        assertEquals(Object.values(found), ["local", "local"], what);
        assertEquals(machine.lo.toSorted(), ["fd00:5::2", "fd00:96::2"], what);
        assertEquals([...machine.host.localRoutes], [], what);
        assertEquals(machine.host.nonlocalBind.IPv6, "0", what);
        assertEquals((await machine.create({ family: "IPv6" }).cleanup()).failed, [], what);
        assertEquals(machine.lo, [], what);
      }
    }
  }
});

Deno.test("configure() counts an address that stops being local as moved", async () => {
  const machine = new Machine();
  const addresses = await withRange(machine);
  await acquire(addresses, clusterIp("10.96.0.1"));
  assertEquals(addresses.takeMoved(), false);
  machine.host.refused.add(parseIpAddress("10.96.0.1"));
  assertEquals(await addresses.configure([], 1), true);
  assertEquals(addresses.placeOf(parseIpAddress("10.96.0.1"))?.kind, "unavailable");
  assertEquals(addresses.takeMoved(), true);
});
