import { assertEquals, assertStringIncludes } from "@std/assert";
import { FakeNft } from "../../tests/support/fakes/fake_nft.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { claimsOf } from "./entry_id.ts";
import { atOnce } from "../netfilter/in_steps.ts";
import { TableListing } from "../netfilter/nft/table_listing.ts";
import { countedElements, countingSteps, isCounted } from "./counting_table.ts";

const PLAN = testServicePlan({
  clusterIp: "172.30.0.1",
  nodePort: 30080,
  externalIps: ["192.0.2.1"],
  to: ["10.0.0.1:80"],
});
const IDS = claimsOf(PLAN);
const FRONTS = IDS.filter(isCounted);

function text(changes: Parameters<typeof countingSteps>[1]): string {
  return [...atOnce(countingSteps("IPv4", changes)).text()].join("");
}

Deno.test("isCounted() accepts destinations of packets", () => {
  assertEquals(FRONTS, [
    "service-ips 172.30.0.1 . tcp . 80",
    "service-ips 192.0.2.1 . tcp . 80",
    "node-ports tcp . 30080",
  ]);
  assertEquals(IDS.length > FRONTS.length, true, "the cluster IP is in other sets, too");
});

Deno.test("countingSteps() gives each frontend a counter for each direction", () => {
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

Deno.test("countingSteps() declares the sets that it fills, and can be repeated", () => {
  const nft = new FakeNft();
  const whole = text({ declares: true, added: FRONTS });
  nft.run(whole);
  nft.run(text({ declares: true }));
  const { chains, elements, hooks } = nft.table("ip kube-relay-counters");
  assertEquals([...hooks].length, 2);
  assertEquals([...chains.values()].map(({ length }) => length), [2, 1, 1]);
  assertEquals(elements.get("service-ips")?.size, 4);
});

/** As nft 1.0.6 prints it. */
const PRINT = `table ip kube-relay-counters {
\tset service-ips {
\t\ttype ipv4_addr . inet_proto . inet_service . ct_dir
\t\tcounter
\t\telements = { 172.30.0.1 . tcp . 80 . original counter packets 6 bytes 337,
\t\t\t     172.30.0.1 . tcp . 80 . reply counter packets 5 bytes 380 }
\t}

\tset node-ports {
\t\ttype inet_proto . inet_service . ct_dir
\t\tcounter
\t\telements = { udp . 30080 . reply counter packets 0 bytes 0 }
\t}

\tchain sent {
\t\ttype filter hook output priority -80; policy accept;
\t\tct status dnat goto count
\t}
}
`;

Deno.test("countedElements() returns the counters of each element, including the first of a set", () => {
  const listing = new TableListing();
  for (const line of PRINT.split("\n")) listing.take(line);
  assertEquals(
    atOnce(countedElements(listing.end()))
      .map(({ id, direction, packets, bytes }) => [id, direction, packets, bytes]),
    [
      ["service-ips 172.30.0.1 . tcp . 80", "original", 6, 337],
      ["service-ips 172.30.0.1 . tcp . 80", "reply", 5, 380],
      ["node-ports udp . 30080", "reply", 0, 0],
    ],
  );
});
