import { assert, assertEquals } from "@std/assert";
import { testService } from "../../../tests/support/builders/builders.ts";
import {
  PlannedState,
  type TestStateChanges,
} from "../../../tests/support/builders/update_plan.ts";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { type IpAddress, parseIpAddress } from "../../net/ip_address.ts";
import type { PlanOptions } from "../../proxy/proxy_plan.ts";
import { servicePortsFromService } from "../../proxy/service_port.ts";
import { HostGuard } from "./host_guard.ts";
import { HostRegistry } from "./host_registry.ts";

const OPTIONS: PlanOptions = {
  ...{ family: "IPv4", localTraffic: { kind: "none" }, nodePortAddresses: { kind: "all" } },
  ...{ masqueradeAll: false, addresses: { bindsAddresses: true } },
};

/** A node whose Services get their addresses at once, and its way to the API server. */
class GuardedNode implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  /** Addresses that cut the node off while they are local. */
  readonly onPath = new Set<IpAddress>();
  isServerUp = true;
  /** How often an address was added or removed. */
  readonly changes = new Map<IpAddress, number>();
  /** Addresses of an earlier run. */
  leftovers: readonly IpAddress[];
  readonly network = {
    interfaceAddresses: () => this.leftovers.map((address) => ({ address, interfaceName: "lo" })),
  };
  disownFails = false;
  readonly guard: HostGuard;
  readonly #ending = new AbortController();
  readonly #planned = new PlannedState(OPTIONS);
  readonly #registry = new HostRegistry((address, host) => {
    if (this.#planned.plan.owners.setHost(address, host)) this.#isDue = true;
    this.guard.hostChanged();
  });
  readonly #running: Promise<void>;
  #isDue = false;
  #hasSynced = false;
  #local = new Set<IpAddress>();

  constructor(leftovers: readonly IpAddress[] = []) {
    this.leftovers = leftovers;
    this.guard = new HostGuard(this, {
      registry: this.#registry,
      families: [this.#family()],
      client: () => ({ get: (_path, signal) => this.#get(signal) }),
      leftoversAreIdle: true,
    });
    this.#running = this.guard.run(this.#ending.signal);
  }

  get local(): readonly string[] {
    return [...this.#local].sort();
  }

  /** Syncs Services with these addresses. */
  services(byName: Readonly<Record<string, readonly IpAddress[]>>): void {
    const ports = Object.entries(byName).flatMap(([name, externalIPs]) =>
      servicePortsFromService(testService(name, { externalIPs: [...externalIPs] }), {
        family: "IPv4",
      }).ports
    );
    this.#sync({ ports });
  }

  /** Lets time pass; a sync that is due follows within a second. */
  async pass(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second++) {
      await this.clock.advance(1000);
      if (this.#isDue) this.#sync({});
      await settle();
    }
  }

  setHost(address: IpAddress): void {
    this.#registry.set("Node other", new Map([[address, { owner: "node other" }]]));
  }

  messages(): readonly string[] {
    return this.logger.lines.map(({ message }) => message);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ending.abort();
    await this.#running;
  }

  #sync(changes: TestStateChanges): void {
    this.#isDue = false;
    const { plan } = this.#planned;
    const found = this.#planned.change(changes);
    const now = new Set(
      [...plan.services.values()].flatMap(({ externalIps }) => externalIps),
    );
    for (const address of now.symmetricDifference(this.#local)) {
      this.changes.set(address, (this.changes.get(address) ?? 0) + 1);
    }
    this.#local = now;
    this.#hasSynced = true;
    this.guard.synced("IPv4", plan, found);
  }

  #family(): ConstructorParameters<typeof HostGuard>[1]["families"][number] {
    const hasSynced = () => this.#hasSynced;
    return {
      get hasSynced() {
        return hasSynced();
      },
      disown: (isForeign) => {
        if (this.disownFails) return Promise.reject(new Error("ip: Device or resource busy"));
        const foreign = this.leftovers.filter(isForeign);
        this.leftovers = this.leftovers.filter((address) => !isForeign(address));
        return Promise.resolve(foreign);
      },
    };
  }

  /** A node that is cut off gets no answer; a server that is down refuses at once. */
  #get(signal: AbortSignal): Promise<unknown> {
    if (!this.onPath.isDisjointFrom(this.#local)) {
      return new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason))
      );
    }
    return this.isServerUp ? Promise.resolve({}) : Promise.reject(new Error("refused"));
  }
}

function addresses(count: number, network = 0): IpAddress[] {
  return Array.from({ length: count }, (_, n) => parseIpAddress(`198.51.${network}.${n + 1}`));
}

Deno.test("HostGuard gives addresses back after an outage of the API server that had nothing to do with them", async () => {
  for (const seconds of [10, 30, 50, 300, 1000]) {
    await using node = new GuardedNode();
    node.isServerUp = false;
    const all = addresses(5);
    node.services({ a: all.slice(0, 3), b: all.slice(3) });
    await node.pass(seconds);
    node.isServerUp = true;
    await node.pass(120);
    assertEquals(node.local, [...all].sort(), `outage of ${seconds} s`);
    // Added once, and given back a few times in an outage of any length.
    for (const [address, count] of node.changes) assert(count <= 5, `${address}: ${count} changes`);
    const errors = node.logger.lines.filter(({ level }) => level === "error");
    assertEquals(errors, [], `outage of ${seconds} s`);
  }
});

Deno.test("HostGuard takes nothing back while the API server restarts", async () => {
  await using node = new GuardedNode();
  node.isServerUp = false;
  node.services({ a: addresses(3) });
  await node.pass(10);
  node.isServerUp = true;
  await node.pass(60);
  assertEquals([...node.changes.values()], [1, 1, 1]);
});

Deno.test("HostGuard suspects no address with which the API server was reached before", async () => {
  const [old, shared, other] = addresses(3);
  await using node = new GuardedNode([old!]);
  node.services({ a: [old!, shared!] });
  await node.pass(1);
  node.isServerUp = false;
  node.services({ b: [shared!], c: [other!] });
  await node.pass(300);
  const [ofOld, ofShared, ofOther] = addresses(3).map((each) => node.changes.get(each));
  assertEquals([ofOld, ofShared], [1, 1]);
  assert(ofOther! > 1);
  await using second = new GuardedNode([old!]);
  second.isServerUp = false;
  second.services({ a: [old!] });
  await second.pass(300);
  assertEquals(second.changes.get(old!), 1);
});

Deno.test("HostGuard withholds the addresses that cut the node off, and no others of the same sync", async () => {
  for (const count of [1, 2, 3, 10]) {
    await using node = new GuardedNode();
    const all = addresses(count);
    const [bad, other] = [all[0]!, all.at(-1)!];
    node.onPath.add(bad).add(other);
    node.services({ tenant: all });
    await node.pass(900);
    const good = all.filter((address) => address !== bad && address !== other);
    assertEquals(node.local, [...good].sort(), `${count} addresses`);
    // An address that comes later does not set the first ones free.
    const [late] = addresses(1, 9);
    node.onPath.add(late!);
    node.services({ late: [late!] });
    await node.pass(300);
    assertEquals(node.local, [...good].sort(), `${count} addresses and a late one`);
    const { changes } = node;
    const before = new Map(changes);
    await node.pass(7200);
    assertEquals(changes, before, "nothing flaps");
  }
});

Deno.test("HostGuard still finds an address that was added as an outage of the API server began", async () => {
  await using node = new GuardedNode();
  const [bad, good] = addresses(2);
  node.onPath.add(bad!);
  node.isServerUp = false;
  node.services({ a: [bad!, good!] });
  await node.pass(300);
  node.isServerUp = true;
  await node.pass(1800);
  assertEquals(node.local, [good!]);
});

Deno.test("HostGuard tries again to give up addresses, and outlives a tool that fails", async () => {
  const [address] = addresses(1);
  await using node = new GuardedNode([address!]);
  node.disownFails = true;
  node.setHost(address!);
  await node.pass(2);
  assertEquals(node.leftovers, [address!]);
  assertEquals(node.messages(), ["Cannot give up addresses of an earlier run"]);
  node.disownFails = false;
  await node.pass(15);
  assertEquals(node.leftovers, []);
});
