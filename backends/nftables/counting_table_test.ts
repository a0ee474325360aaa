import { assertEquals, assertStringIncludes } from "@std/assert";
import { FakeNft } from "../../tests/support/fakes/fake_nft.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { claimsOf } from "./entry_id.ts";
import { countingRemoval, countingText, isCounted } from "./counting_table.ts";

const PLAN = testServicePlan({
  clusterIp: "172.30.0.1",
  nodePort: 30080,
  externalIps: ["192.0.2.1"],
  to: ["10.0.0.1:80"],
});
const IDS = claimsOf(PLAN);
const FRONTS = IDS.filter(isCounted);

function text(changes: Partial<Parameters<typeof countingText>[1]>): string {
  const all = { declares: false, removed: [], added: [], ...changes };
  return [...countingText("IPv4", all)].join("");
}

Deno.test("isCounted() takes what packets are sent to", () => {
  assertEquals(FRONTS, [
    "service-ips 172.30.0.1 . tcp . 80",
    "service-ips 192.0.2.1 . tcp . 80",
    "node-ports tcp . 30080",
  ]);
  assertEquals(IDS.length > FRONTS.length, true, "the cluster IP is in other sets, too");
});

Deno.test("countingText() gives each front a counter for each direction", () => {
  const table = "ip kube-relay-counters";
  assertEquals(
    text({ added: FRONTS }),
    `add element ${table} service-ips {
  172.30.0.1 . tcp . 80 . original,
  172.30.0.1 . tcp . 80 . reply,
  192.0.2.1 . tcp . 80 . original,
  192.0.2.1 . tcp . 80 . reply
}
add element ${table} node-ports {
  tcp . 30080 . original,
  tcp . 30080 . reply
}
`,
  );
  assertStringIncludes(text({ removed: FRONTS }), `delete element ${table} node-ports {`);
  assertEquals(text({}), "");
});

Deno.test("countingText() declares what it fills, and may do so again", () => {
  const nft = new FakeNft();
  const whole = text({ declares: true, added: FRONTS });
  nft.run(whole);
  nft.run(text({ declares: true }));
  const { chains, elements, hooks } = nft.table("ip kube-relay-counters");
  assertEquals([...hooks].length, 2);
  assertEquals([...chains.values()].map(({ length }) => length), [2, 1, 1]);
  assertEquals(elements.get("service-ips")?.size, 4);
});

Deno.test("countingText() has no more than some KB in a piece", () => {
  const added = Array.from(
    { length: 3000 },
    (_, number) =>
      claimsOf(testServicePlan({ clusterIp: `172.30.${number >> 8}.${number & 255}` })),
  ).flat().filter(isCounted);
  const pieces = [...countingText("IPv4", { declares: false, removed: [], added })];
  assertEquals(Math.max(...pieces.map(({ length }) => length)) < 65_536, true);
  const nft = new FakeNft();
  nft.run(text({ declares: true }) + pieces.join(""));
  assertEquals(nft.table("ip kube-relay-counters").elements.get("service-ips")?.size, 6000);
});

Deno.test("countingRemoval() works whether there is a table or not", () => {
  const nft = new FakeNft();
  for (const before of ["", text({ declares: true })]) {
    nft.run(before + countingRemoval("IPv4"));
    assertEquals(nft.tables, []);
  }
});
