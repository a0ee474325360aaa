import { assertEquals, assertThrows } from "@std/assert";
import { explainPacket } from "../../lib/explain/explain_packet.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { explainIpvs, readRenderedKernel } from "./explain.ts";
import { defaultIpvsOptions } from "./render_options.ts";

const WEB = testServicePlan({
  clusterIp: "10.96.0.1",
  externalIps: ["192.0.2.80"],
  to: ["10.0.0.1:80", "10.0.0.2:80"],
});
const OTHER = testServicePlan({ name: "other", clusterIp: "10.96.0.1", port: 81 });

function explain(
  services: readonly ServicePlan[],
  { to = "10.96.0.1", port = 80, from = "outside", isRefused = false }: {
    readonly to?: string;
    readonly port?: number;
    readonly from?: Packet["from"]["kind"];
    /** Whether the kernel refused the first Service. */
    readonly isRefused?: boolean;
  } = {},
) {
  const plan = testProxyPlan(services);
  const packet = {
    from: { kind: from, address: parseIpAddress("203.0.113.1") },
    to: parseIpAddress(to),
    port: parsePort(port),
    protocol: "TCP",
  } as const;
  const quarantined = isRefused ? [{ key: WEB.key, reason: "refused" }] : [];
  return explainIpvs(
    plan,
    explainPacket(plan, packet, { quarantined }),
    defaultIpvsOptions("IPv4"),
  );
}

function named({ carriers }: ReturnType<typeof explain>, object: string): readonly string[] {
  return carriers.filter((each) => each.object === object).map(({ name }) => name);
}

Deno.test("explainIpvs() names the address, the virtual server and its real servers, among many", () => {
  const found = explain([OTHER, WEB]);
  assertEquals(named(found, "address"), ["10.96.0.1"]);
  assertEquals(named(found, "virtual server"), ["10.96.0.1:80/TCP"]);
  assertEquals(named(found, "real server"), [
    "10.96.0.1:80/TCP 10.0.0.1:80",
    "10.96.0.1:80/TCP 10.0.0.2:80",
  ]);
});

Deno.test("explainIpvs() knows that Service addresses are closed for all else", () => {
  for (const to of ["10.96.0.1", "192.0.2.80"]) {
    for (const from of ["node", "outside"] as const) {
      const { deviations, carriers } = explain([WEB], { to, port: 22, from });
      assertEquals(deviations?.outcome?.kind, "reject", `${to} ${from}`);
      assertEquals(carriers.at(-1)?.text, `add KUBE-IPVS-IPS ${to}`);
    }
  }
  assertEquals(explain([WEB], { to: "10.96.0.2" }), { carriers: [] });
});

Deno.test("explainIpvs() has nothing of a ServicePort in quarantine", () => {
  assertEquals(explain([WEB], { isRefused: true }), { carriers: [] });
  assertEquals(explain([WEB, OTHER], { isRefused: true }).deviations?.outcome?.kind, "reject");
});

Deno.test("explainIpvs() knows that the node uses the Service address itself as its source", () => {
  const plan = { ...WEB, masqueradeInternal: "none" } as const;
  assertEquals(explain([plan], { from: "node" }).deviations?.source?.rewritten, "always");
  assertEquals(explain([plan]).deviations, {});
});

Deno.test("readRenderedKernel() keeps the lines that rules, sets, addresses and servers come from", () => {
  const key = "-t [fd00::1]:80" as const;
  const { rules, ipvs } = readRenderedKernel([
    {
      tool: "ipset",
      lines: ["create A hash:ip -exist", "add A fd00::1 -exist", "create B hash:ip"],
    },
    {
      tool: "iptables",
      lines: [
        "*nat",
        ":KUBE-A - [0:0]",
        "-A KUBE-A -j DROP",
        "-I INPUT -j X",
        "-I INPUT -j Y",
        "COMMIT",
      ],
    },
    { tool: "ip", lines: ["link add d type dummy", "addr replace fd00::1/128 dev d"] },
    {
      tool: "ipvsadm",
      operations: [
        { kind: "addServer", server: { key: key as never, scheduler: "rr", flags: [] } },
        {
          kind: "addReal",
          server: key as never,
          real: { key: "[fd00::2]:80" as never, forwarding: "masquerade", weight: 1 },
        },
      ],
    },
  ]);
  assertEquals(rules("nat", "KUBE-A"), ["-j DROP"]);
  assertEquals(rules("nat", "INPUT"), ["-j Y", "-j X"]);
  assertEquals([rules("filter", "INPUT"), rules("filter", "KUBE-A")], [[], undefined]);
  assertEquals([ipvs.entries("A"), ipvs.entries("B"), ipvs.entries("C")], [
    ["fd00::1"],
    [],
    undefined,
  ]);
  const destination = parseIpAddress("fd00::1");
  assertEquals(ipvs.address(destination), "addr replace fd00::1/128 dev d");
  assertEquals(ipvs.server({ destination, port: 80, protocol: "TCP" }), [
    `-A ${key} -s rr`,
    `-a ${key} -r [fd00::2]:80 -m -w 1`,
  ]);
  assertEquals(ipvs.server({ destination, port: 80, protocol: "UDP" }), undefined);
});

Deno.test("readRenderedKernel() refuses every line that a first sync does not have", () => {
  for (
    const [tool, line] of [
      ["ipset", "del A 10.0.0.1 -exist"],
      ["iptables", "-D KUBE-A -j DROP"],
      ["ip", "addr del 10.0.0.1/32 dev d"],
    ] as const
  ) {
    assertThrows(() => readRenderedKernel([{ tool, lines: [line] }]), Error, `'${line}'`);
  }
  const operations = [{ kind: "deleteServer", key: "-t 10.0.0.1:80" as never }] as const;
  assertThrows(
    () => readRenderedKernel([{ tool: "ipvsadm", operations }]),
    Error,
    "'-D -t 10.0.0.1:80'",
  );
});
