import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { FakeNft, type FakeNftTable } from "../../tests/support/fake_nft.ts";
import { randomServicePlan } from "../../tests/support/random_service_plan.ts";
import {
  testProxyPlan,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/service_plans.ts";
import { AppliedTable, type TableReading } from "./applied_table.ts";
import { baseChains } from "./base_chains.ts";
import { chainElement, chainName } from "./chain_spec.ts";
import { CONTAINER_NAMES, isContainerName } from "./containers.ts";
import { diffTable, diffTableInSlices, removeIdleChains } from "./diff.ts";
import { NftablesLayout } from "./layout.ts";
import { renderNftables } from "./render.ts";
import { defaultRenderOptions, type NftablesRenderOptions } from "./render_options.ts";
import type { Transaction } from "./transaction.ts";

const OPTIONS: NftablesRenderOptions = {
  ...defaultRenderOptions("IPv4"),
  nodePortAddresses: { kind: "cidrs", cidrs: [parseCidr("192.168.0.0/16")] },
};
const SHARED = testSharedPlan({
  localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
  serviceCidrs: [parseCidr("172.30.0.0/16")],
});
const TABLE = "ip kube-relay";

/** A layout, and a tool that takes its transactions. */
class Stage {
  readonly layout = new NftablesLayout(SHARED, OPTIONS);
  readonly applied = new AppliedTable();
  readonly nft = new FakeNft();

  constructor() {
    this.applied.adopt(undefined);
    this.sync();
  }

  get table(): FakeNftTable {
    return this.nft.table(TABLE);
  }

  sync(): Transaction {
    const transaction = diffTable(this.layout, this.applied);
    this.take(transaction);
    this.layout.settle();
    return transaction;
  }

  take(transaction: Transaction): void {
    this.nft.run([...transaction.text()].join(""));
    this.applied.confirm(transaction.applied);
  }

  /** What a reading of the table comes to. */
  reading(): TableReading {
    const { chains, elements } = this.table;
    return {
      chains: [...chains.keys()],
      containers: [...elements.keys()],
      rules: new Map([...chains].map(([name, rules]) => [name, rules.join("\n")])),
      elements: new Map(
        [...elements].flatMap(([name, values]) =>
          isContainerName(name) ? [[name, values] as const] : []
        ),
      ),
    };
  }
}

/** The number-th ServicePort, with two endpoints. */
function plan(number: number, to?: readonly string[]): ServicePlan {
  const [high, low] = [number >> 8, number & 255];
  return testServicePlan({
    name: `service-${number}`,
    clusterIp: `172.30.${high}.${low}`,
    masqueradeInternal: "off-cluster",
    to: to ?? [`10.1.${high}.${low}:8080`, `10.2.${high}.${low}:8080`],
  });
}

/** All of a table that matters: what nothing leads to is left out, and so is the order of endpoints. */
function meaningOf({ chains, elements }: FakeNftTable): unknown {
  const numbers = new Set(
    ["service-ips", "node-ports"].flatMap((
      name,
    ) => [...elements.get(name)?.values() ?? []]),
  );
  const admitted = new Set(elements.get("admitted")?.values());
  const used = [...elements.get("chains") ?? []]
    .filter(([number, value]) => numbers.has(number) || admitted.has(value));
  const targets = new Set(used.map(([, value]) => value.replace("goto ", "")));
  const lasting = new Set(baseChains({ options: OPTIONS }).map(({ name }) => name));
  const numbered = /^(node-port-)?(endpoints|choices)$/;
  return {
    chains: new Map(
      [...chains].filter(([name]) => lasting.has(name) || targets.has(name)).sort(),
    ),
    elements: new Map([...elements].map(([name, values]) => [
      name,
      (name === "chains" ? used : [...values]).map(([key, value]) =>
        // Which of the numbers an endpoint has is left to history; in which list it is, is not.
        numbered.test(name)
          ? `${key.replace(/0x8000[08]\w+$/, listOf)} ${value}`
          : `${key} ${value}`
      ).sort(),
    ])),
    numbers: [...elements].filter(([name]) => numbered.test(name))
      .map(([name, values]) => [name, [...values.keys()].sort()]),
  };
}

function listOf(number: string): string {
  return number < "0x80008000" ? "main" : "local";
}

/** What rendering these plans from nothing comes to. */
function fresh(plans: Iterable<ServicePlan>, shared: SharedPlan = SHARED): FakeNftTable {
  const nft = new FakeNft();
  const { transaction } = renderNftables(testProxyPlan([...plans], { shared }), OPTIONS);
  nft.run([...transaction.text()].join(""));
  return nft.table(TABLE);
}

const step = fc.oneof(
  { arbitrary: randomServicePlan.map((plan) => ({ kind: "set" as const, plan })), weight: 6 },
  {
    arbitrary: fc.integer({ min: 0, max: 60 }).map((name) => ({ kind: "delete" as const, name })),
    weight: 2,
  },
  {
    arbitrary: fc.record({
      kind: fc.constant("shared" as const),
      cidrs: fc.subarray(["172.30.0.0/16", "172.30.0.0/24", "172.31.0.0/16"]),
      addresses: fc.subarray(["192.168.0.2", "127.0.0.1", "192.168.1.2"]),
    }),
    weight: 1,
  },
  { arbitrary: fc.constant({ kind: "sync" as const }), weight: 2 },
  { arbitrary: fc.constant({ kind: "failure" as const }), weight: 1 },
  { arbitrary: fc.constant({ kind: "cleanup" as const }), weight: 1 },
);

Deno.test("diffTable() comes to what is rendered from nothing, whatever happened before", () => {
  let failures = 0;
  fc.assert(
    fc.property(fc.array(step, { minLength: 5, maxLength: 40, size: "max" }), (steps) => {
      const stage = new Stage();
      const plans = new Map<ServicePortKey, ServicePlan>();
      let shared = SHARED;
      for (const step of steps) {
        if (step.kind === "set") {
          plans.set(step.plan.key, step.plan);
          stage.layout.set(step.plan);
        } else if (step.kind === "delete") {
          const { key } = plan(0);
          const gone = key.replace("service-0", String(step.name)) as ServicePortKey;
          plans.delete(gone);
          stage.layout.delete(gone);
        } else if (step.kind === "shared") {
          shared = testSharedPlan({
            ...SHARED,
            serviceCidrs: step.cidrs.map(parseCidr),
            nodePortAddresses: step.addresses.map(parseIpAddress),
          });
          stage.layout.setShared(shared);
        } else if (step.kind === "sync") {
          stage.sync();
        } else if (step.kind === "cleanup") {
          stage.sync();
          stage.take(removeIdleChains(stage.layout, stage.applied));
        } else {
          // Taken by the kernel or not: nobody knows, and the table is read.
          const transaction = diffTable(stage.layout, stage.applied);
          if (failures++ % 2 === 0) stage.nft.run([...transaction.text()].join(""));
          stage.applied.adopt(stage.reading());
        }
      }
      stage.sync();
      assertEquals(meaningOf(stage.table), meaningOf(fresh(plans.values(), shared)));
    }),
    { numRuns: 1_000 },
  );
  assert(failures > 500, `only ${failures} failures were tried`);
});

Deno.test("diffTable() writes nothing where nothing changed", () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  stage.sync();
  stage.layout.set(plan(1));
  const transaction = stage.sync();
  assertEquals([transaction.isEmpty, transaction.elements], [true, 0]);
});

/** The number of the chain for so many endpoints. */
function number(main: number): string {
  return chainElement(chainName({ front: "vip", treatment: "off-cluster", main })).key;
}

for (const count of [100, 2_000]) {
  Deno.test(`diffTable() writes as much for a change among ${count} ServicePorts as for any other`, () => {
    const stage = new Stage();
    for (let number = 0; number < count; number++) stage.layout.set(plan(number));
    stage.sync();
    const changes: readonly [string, () => void, lines: readonly string[]][] = [
      ["an endpoint", () => stage.layout.set(plan(7, ["10.1.0.7:8080", "10.9.0.7:8080"])), [
        "delete element ip kube-relay endpoints {",
        "  172.30.0.7 . tcp . 80 . 0x80000001",
        "}",
        "add element ip kube-relay endpoints {",
        "  172.30.0.7 . tcp . 80 . 0x80000001 : 10.9.0.7 . 8080",
        "}",
      ]],
      [
        "an endpoint more",
        () => stage.layout.set(plan(7, ["10.0.0.7:8080", "10.1.0.7:8080", "10.9.0.7:8080"])),
        [
          "add chain ip kube-relay off-cluster-3",
          "flush chain ip kube-relay off-cluster-3",
          "delete element ip kube-relay service-ips {",
          "  172.30.0.7 . tcp . 80",
          "}",
          "add rule ip kube-relay off-cluster-3 ip saddr != 10.0.0.0/8 meta mark set meta mark or 0x4000",
          "add rule ip kube-relay off-cluster-3 meta priority set numgen random mod 3 offset " +
          "2147483648 dnat ip addr . port to ip daddr . meta l4proto . th dport . meta priority " +
          "map @endpoints",
          "add element ip kube-relay chains {",
          `  ${number(3)} : goto off-cluster-3`,
          "}",
          "add element ip kube-relay service-ips {",
          `  172.30.0.7 . tcp . 80 : ${number(3)}`,
          "}",
          "add element ip kube-relay endpoints {",
          "  172.30.0.7 . tcp . 80 . 0x80000002 : 10.0.0.7 . 8080",
          "}",
        ],
      ],
      ["a ServicePort less", () => stage.layout.delete(plan(9).key), [
        "delete element ip kube-relay service-ips {",
        "  172.30.0.9 . tcp . 80",
        "}",
        "delete element ip kube-relay endpoints {",
        "  172.30.0.9 . tcp . 80 . 0x80000000,",
        "  172.30.0.9 . tcp . 80 . 0x80000001",
        "}",
        "delete element ip kube-relay cluster-ips {",
        "  172.30.0.9",
        "}",
      ]],
    ];
    for (const [name, change, lines] of changes) {
      change();
      assertEquals(stage.sync().lines, lines, name);
    }
  });
}

Deno.test("diffTable() moves one endpoint of fifty, not those after it", () => {
  const stage = new Stage();
  const endpoints = Array.from({ length: 50 }, (_, index) => `10.1.0.${index + 100}:8080`);
  stage.layout.set(plan(1, endpoints));
  stage.sync();
  stage.layout.set(plan(1, ["10.0.0.1:8080", ...endpoints.slice(1)]));
  assertEquals(stage.sync().elements, 2);
  stage.layout.set(plan(1, endpoints.slice(1)));
  // The number of another chain, that chain, the last endpoint, and who takes the place that came free.
  assertEquals(stage.sync().elements, 2 + 1 + 1 + 2);
});

Deno.test("diffTable() knows whose line is refused", () => {
  const stage = new Stage();
  for (const number of [1, 2]) stage.layout.set(plan(number));
  const transaction = diffTable(stage.layout, stage.applied);
  const line = transaction.lines.indexOf("  172.30.0.2 . tcp . 80 . 0x80000001 : 10.2.0.2 . 8080") +
    1;
  assertEquals(transaction.ownerOf(line), plan(2).key);
  assertEquals(transaction.ownerOf(1), undefined);
});

Deno.test("diffTable() keeps what is right of a table that was read", () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  stage.layout.set(plan(2));
  stage.sync();
  stage.table.elements.get("endpoints")?.set("172.30.0.1 . tcp . 80 . 0x80000000", "10.66.0.1 . 1");
  stage.table.elements.get("cluster-ips")?.delete("172.30.0.2");
  stage.table.elements.get("service-ips")?.set("172.30.0.9 . tcp . 80", "0x80000007");
  stage.table.elements.get("affinity")?.set("10.0.0.1 . 172.30.0.1 . tcp . 80", "0x80000001");
  stage.applied.adopt(stage.reading());
  assertEquals(stage.sync().lines.filter((line) => line.startsWith("  ")), [
    "  172.30.0.9 . tcp . 80",
    "  172.30.0.1 . tcp . 80 . 0x80000000",
    "  172.30.0.1 . tcp . 80 . 0x80000000 : 10.1.0.1 . 8080",
    "  172.30.0.2",
  ]);
  assertEquals(stage.table.elements.get("affinity")?.size, 1);
});

Deno.test("diffTable() writes rules anew that somebody changed, and finds nothing more then", () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  stage.sync();
  const verify = () => {
    stage.applied.adopt(stage.reading());
    const changed = stage.applied.changedChains;
    return [changed, stage.sync().lines.filter((line) => line.startsWith("add rule")).length > 0];
  };
  verify();
  assertEquals([verify(), verify()], [[0, false], [0, false]]);
  stage.table.chains.get("services")?.unshift("drop");
  assertEquals(verify(), [1, true]);
  assertEquals(meaningOf(stage.table), meaningOf(fresh([plan(1)])));
  verify();
  assertEquals(verify(), [0, false]);
});

Deno.test("diffTable() fills a chain that an earlier run left before it leads there", () => {
  const stage = new Stage();
  const name = chainName({ front: "vip", treatment: "off-cluster", main: 2 });
  stage.table.chains.set(name, ["drop"]);
  stage.applied.adopt(stage.reading());
  stage.sync();
  stage.layout.set(plan(1));
  stage.sync();
  assertEquals(meaningOf(stage.table), meaningOf(fresh([plan(1)])));
});

Deno.test("diffTable() replaces a table of another version in one go", () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  stage.table.chains.set("layout-0", []);
  stage.table.chains.delete("layout-1");
  stage.table.elements.set("old-map", new Map([["1", "drop"]]));
  stage.applied.adopt(stage.reading());
  const { lines } = stage.sync();
  assertEquals(lines.slice(0, 2), [`delete table ${TABLE}`, `add table ${TABLE}`]);
  assertEquals([...stage.table.elements.keys()], [...CONTAINER_NAMES]);
  assertEquals(meaningOf(stage.table), meaningOf(fresh([plan(1)])));
});

Deno.test("removeIdleChains() takes away what nothing leads to, and nothing else", () => {
  const stage = new Stage();
  stage.layout.set(plan(1));
  stage.sync();
  stage.layout.set(plan(1, ["10.1.0.1:8080"]));
  stage.sync();
  const name = chainName({ front: "vip", treatment: "off-cluster", main: 2 });
  assert(stage.table.chains.has(name));
  stage.take(removeIdleChains(stage.layout, stage.applied));
  assertEquals(stage.table.elements.get("chains")?.has(chainElement(name).key), false);
  stage.take(removeIdleChains(stage.layout, stage.applied));
  assertEquals(stage.table.chains.has(name), false);
  assertEquals(removeIdleChains(stage.layout, stage.applied).isEmpty, true);
  assertEquals(meaningOf(stage.table), meaningOf(fresh([plan(1, ["10.1.0.1:8080"])])));
});

Deno.test("diffTableInSlices() comes to the same, with pauses", async () => {
  const stage = new Stage();
  for (let number = 0; number < 1_000; number++) stage.layout.set(plan(number));
  let pauses = 0;
  const transaction = await diffTableInSlices(stage.layout, stage.applied, {
    pause: () => {
      pauses++;
      return undefined;
    },
  });
  assert(pauses > 10);
  assertEquals(transaction.lines, diffTable(stage.layout, stage.applied).lines);
});
