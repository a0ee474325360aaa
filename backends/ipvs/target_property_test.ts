import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import {
  OwnedPlans,
  testProxyPlan,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { FakeIpvsMachine } from "../../tests/support/fakes/fake_ipvs_machine.ts";
import type { FakeOutcome, FakePacket } from "../../tests/support/fakes/fake_ipvs_kernel.ts";
import { IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";

const NODE = parseIpAddress("192.168.0.2");
const ADDRESSES = [NODE, parseIpAddress("192.168.1.2")];
const SHARED = testSharedPlan({
  localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
  interfaceAddresses: ADDRESSES,
  nodePortAddresses: [NODE, parseIpAddress("127.0.0.1")],
});
const FOREIGN = "-A -t 198.51.100.7:80 -s wlc";

/** One history on a machine. */
class World {
  readonly machine = machineOfNode();
  readonly services = new Map<ServicePortKey, ServicePlan>();
  readonly plans = new OwnedPlans({
    set: (plan) => void this.services.set(plan.key, plan),
    delete: (key) => void this.services.delete(key),
  }, SHARED);
  shared: SharedPlan = SHARED;
  stage = new IpvsStage(this.machine);

  static async create(): Promise<World> {
    const world = new World();
    world.machine.kernel.take("ipvsadm", FOREIGN);
    await world.stage.backend.start();
    return world;
  }

  get plan(): ProxyPlan {
    return { ...testProxyPlan([...this.services.values()]), shared: this.shared };
  }

  async sync(): Promise<void> {
    // What was refused is tried again.
    await this.stage.clock.advance(400_000);
    await this.stage.sync(this.plan, { retried: [...this.services.values()] });
  }

  async restart(): Promise<void> {
    await this.stage[Symbol.asyncDispose]();
    this.stage = new IpvsStage(this.machine);
    await this.stage.backend.start();
  }
}

function machineOfNode(): FakeIpvsMachine {
  const machine = new FakeIpvsMachine();
  machine.interfaceAddresses = ADDRESSES.map((address) => ({ interfaceName: "eth0", address }));
  return machine;
}

/** Of a rendering from nothing, on a machine with the server of another program. */
async function fresh(plan: ProxyPlan): Promise<string> {
  const machine = machineOfNode();
  machine.kernel.take("ipvsadm", FOREIGN);
  await using stage = await IpvsStage.started(machine);
  await stage.sync(plan);
  return stateOf(machine);
}

/** Jumps and chains come in the order in which they were made. */
function stateOf(machine: FakeIpvsMachine): string {
  return machine.dump().split("\n").sort().join("\n");
}

let [failures, damages, refusals, restarts, kills] = [0, 0, 0, 0, 0];

type Step = (world: World) => Promise<void> | void;

const step = fc.oneof(
  {
    arbitrary: randomServicePlan.map((plan): Step => ({ plans }) => plans.set(plan)),
    weight: 6,
  },
  {
    arbitrary: fc.nat(60).map((name): Step => ({ plans }) =>
      plans.delete(testServicePlan({ name: String(name) }).key)
    ),
    weight: 2,
  },
  {
    arbitrary: fc.record({
      addresses: fc.subarray(ADDRESSES),
      isNone: fc.boolean(),
    }).map(({ addresses, isNone }): Step => (world) => {
      world.shared = {
        ...SHARED,
        ...(isNone && { localTraffic: { kind: "none" } }),
        nodePortAddresses: addresses,
      };
    }),
    weight: 1,
  },
  { arbitrary: fc.constant<Step>((world) => world.sync()), weight: 3 },
  // It is unknown whether the kernel took it.
  {
    arbitrary: fc.record({ carriedOut: fc.boolean(), at: fc.nat(6) }).map(
      ({ carriedOut, at }): Step => async (world) => {
        failures++;
        const { commands } = world.machine;
        const failing = commands.calls.length + 1 + at;
        commands.failCall(failing, "timeout", { carriedOut });
        await world.sync().catch((error) => assert(error instanceof Error));
        while (commands.calls.length < failing) await commands.run("sysctl", []).catch(() => {});
      },
    ),
    weight: 1,
  },
  {
    arbitrary: fc.constant<Step>(async (world) => {
      restarts++;
      await world.sync();
      await world.restart();
      assertEquals(await world.stage.writesOf(() => world.sync()), []);
    }),
    weight: 1,
  },
  // Killed before a program, or in the middle of its input.
  {
    arbitrary: fc.nat(40).map((lines): Step => async (world) => {
      let left = lines;
      world.machine.refuses = () => left-- > 0 ? undefined : "Operation not permitted";
      await world.sync().catch(() => kills++);
      world.machine.refuses = () => undefined;
      await world.restart();
    }),
    weight: 1,
  },
  // The kernel takes nothing of one Service.
  {
    arbitrary: fc.record({
      place: fc.nat(1_000),
      tool: fc.constantFrom("ip" as const, "ipset" as const, "ipvsadm" as const),
    }).map(({ place, tool }): Step => async (world) => {
      const all = [...world.services.values()];
      const { clusterIp, key } = all[place % Math.max(1, all.length)] ?? {};
      if (clusterIp === undefined) return;
      const text = tool === "ip"
        ? `${clusterIp}/32`
        : `${clusterIp}${tool === "ipset" ? "," : ":"}`;
      const isAdding = /^(addr replace|add|-[AaEe]) /;
      world.machine.refuses = (which, line) =>
        which === tool && isAdding.test(line) && line.includes(` ${text}`)
          ? "No memory"
          : undefined;
      world.services.set(key!, { ...world.services.get(key!)! });
      const others = world.plan.services.entries().filter(([, each]) =>
        each.clusterIp !== clusterIp
      );
      for (const { key } of world.machine.kernel.table.getServers()) {
        if (key.startsWith(`-t ${clusterIp}:`)) world.machine.kernel.take("ipvsadm", `-D ${key}`);
      }
      world.machine.kernel.addresses.delete(clusterIp);
      world.machine.kernel.sets.get("KUBE-CLUSTER-IP")?.clear();
      await world.restart();
      const { quarantined } = await world.stage.sync(world.plan);
      assert(quarantined.length > 0);
      refusals++;
      const blamed = new Set(quarantined.map(({ key }) => key));
      const left = new Map(others.filter(([key]) => !blamed.has(key)));
      assertEquals(blamed.size, world.plan.services.size - left.size, "and no other one");
      assertEquals(stateOf(world.machine), await fresh({ ...world.plan, services: left }));
      world.machine.refuses = () => undefined;
    }),
    weight: 2,
  },
  {
    arbitrary: fc.record({ place: fc.nat(1_000), how: fc.nat(7) }).map(
      ({ place, how }): Step => async (world) => {
        await world.sync();
        if (!damage(world.machine, place, how)) return;
        damages++;
        await using other = new IpvsStage(world.machine);
        assert((await other.backend.compare?.(world.plan))!.length > 0, `damage ${how}`);
        // Seen by a look, or by the comparison of everything.
        world.stage.backend.recheck();
        await world.stage.pass(31_000);
        assertEquals(stateOf(world.machine), await fresh(world.plan));
        assertEquals(await other.backend.compare?.(world.plan), []);
      },
    ),
    weight: 1,
  },
);

/** Changes one object as another program would; returns whether there is one. */
function damage({ kernel, iptables }: FakeIpvsMachine, place: number, how: number): boolean {
  const servers = kernel.table.getServers().filter(({ key }) => !key.includes("198.51.100.7"));
  const server = servers[place % Math.max(1, servers.length)]?.key;
  const sets = [...kernel.sets].filter(([, entries]) => entries.size > 0);
  const [name, entries = new Set()] = sets[place % Math.max(1, sets.length)] ?? [];
  const [entry] = entries;
  const [address] = kernel.addresses;
  switch (how) {
    case 0:
      return server !== undefined && (kernel.take("ipvsadm", `-D ${server}`), true);
    case 1:
      return server !== undefined && (kernel.take("ipvsadm", `-E ${server} -s lc`), true);
    case 2:
      return server !== undefined &&
        (kernel.take("ipvsadm", `-a ${server} -r 192.0.2.9:1 -m -w 1`), true);
    case 3:
      return name !== undefined && entries.delete(entry);
    case 4:
      return address !== undefined && kernel.addresses.delete(address);
    case 5:
      kernel.hasDevice = false;
      return true;
    case 6:
      iptables.tool.restore("*nat\n:KUBE-FROM-CLUSTER - [0:0]\nCOMMIT\n");
      return true;
    default:
      iptables.tool.restore("*nat\n-A KUBE-FROM-CLUSTER -j ACCEPT\nCOMMIT\n");
      return true;
  }
}

Deno.test("the engine gives the objects of a rendering from nothing, whatever happened before", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 5, maxLength: 30, size: "max" }),
      async (steps) => {
        const world = await World.create();
        for (const step of steps) await step(world);
        await world.sync();
        assertEquals(stateOf(world.machine), await fresh(world.plan));
        await using other = new IpvsStage(world.machine);
        assertEquals(await other.backend.compare?.(world.plan), []);
        await world.stage[Symbol.asyncDispose]();
      },
    ),
    { numRuns: 50 },
  );
  for (const count of [failures, damages, refusals, restarts, kills]) {
    assert(count > 2, `${count}`);
  }
});

const WEB = { protocol: "TCP", port: 80 } as const;

/** All packets that random plans have something to say about. */
const PACKETS: readonly FakePacket[] = [
  ...Array.from(
    { length: 16 },
    (_, low) => ({ ...WEB, address: parseIpAddress(`172.30.0.${low}`) }),
  ),
  ...["192.168.99.1", "192.168.99.2", "1.2.3.4"].flatMap((address) =>
    [80, 443].map((port) => ({ ...WEB, port, address: parseIpAddress(address) }))
  ),
];

/** Whether a packet may meet this on the way from one fate to another. What goes refuses before. */
function isBetween(fate: FakeOutcome, before: FakeOutcome, after: FakeOutcome): boolean {
  if (fate === "reject" && after === "away") return true;
  if (typeof fate === "string") return fate === before || fate === after;
  const known = [before, after].flatMap((each) => typeof each === "string" ? [] : each);
  return fate.every((endpoint) => known.includes(endpoint));
}

const change = fc.oneof(
  { arbitrary: randomServicePlan.map((plan): Step => ({ plans }) => plans.set(plan)), weight: 6 },
  {
    arbitrary: fc.nat(60).map((name): Step => ({ plans }) =>
      plans.delete(testServicePlan({ name: String(name) }).key)
    ),
    weight: 2,
  },
  { arbitrary: fc.constant<Step>(syncExposingNothing), weight: 3 },
);

/** Syncs, and asks for the fate of each packet before each line. */
async function syncExposingNothing(world: World): Promise<void> {
  const { machine } = world;
  const fates = () => PACKETS.map((packet) => machine.kernel.fate(packet));
  const seen: { readonly line: string; readonly fates: FakeOutcome[] }[] = [];
  machine.refuses = (_, line) => {
    seen.push({ line, fates: fates() });
    return undefined;
  };
  const before = fates();
  await world.sync();
  machine.refuses = () => undefined;
  const after = fates();
  for (const [index, packet] of PACKETS.entries()) {
    for (const { line, fates } of seen) {
      const [fate, old, next] = [fates[index]!, before[index]!, after[index]!];
      const what = `${packet.address}:${packet.port} before '${line}'`;
      assert(isBetween(fate, old, next), `${what}: ${fate}, between ${old} and ${next}`);
    }
  }
}

Deno.test("a sync exposes no packet to a partial state", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(change, { minLength: 20, maxLength: 100, size: "max" }),
      async (steps) => {
        const world = await World.create();
        await world.sync();
        for (const step of [...steps, syncExposingNothing]) await step(world);
        assertEquals(stateOf(world.machine), await fresh(world.plan));
        await world.stage[Symbol.asyncDispose]();
      },
    ),
    { numRuns: 25 },
  );
});
