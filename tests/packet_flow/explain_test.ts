/**
 * Compares `explain` with the packet-flow table: for every row and in every mode, with the result
 * that the tests with real packets require.
 */
import { assert, assertEquals } from "@std/assert";
import { parsePort } from "../../lib/net/port.ts";
import { BACKEND_MODES, type BackendMode, MODE_TRAITS } from "../../lib/proxy/backend.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import { explainPacket } from "../../lib/proxy/explain_packet.ts";
import type { PacketCarrier } from "../../lib/proxy/packet_explanation.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { PACKET_FLOW_CASES } from "./cases.ts";
import { explainCase, explainStage, outcomeOf } from "./explain_executor.ts";
import { executeOnIptables, scenarioRules } from "./iptables_executor.ts";
import { MODE_ADAPTATIONS } from "./mode_exceptions.ts";
import { executeOnNft, nftScenarioTable } from "./nft_executor.ts";
import { executeOnIpvs, ipvsScenarioKernel } from "./ipvs_executor.ts";
import type { PacketFlowCase, PacketOutcome, PacketVerdict } from "./packet_flow_case.ts";
import { type PacketFlowSkip, runPacketFlowSuite } from "./suite.ts";
import { asUdp, inOtherFamily } from "./variants.ts";

const NO_SCTP: PacketFlowSkip = {
  reason: "userspace mode forwards no SCTP",
  cases: ({ protocol }) => protocol === "SCTP",
};

const TABLES: readonly (readonly [name: string, cases: readonly PacketFlowCase[]])[] = [
  ["as it stands", PACKET_FLOW_CASES],
  ["other family", inOtherFamily(PACKET_FLOW_CASES)],
  ["UDP", asUdp(PACKET_FLOW_CASES)],
  ["UDP, other family", inOtherFamily(asUdp(PACKET_FLOW_CASES))],
];

/** Whether a rule, an element or a real server sends packets to an endpoint. */
function leadsTo({ text }: PacketCarrier, endpoint: EndpointKey): boolean {
  const element = endpoint.replace(/^\[?([^\]]*)\]?:(\d+)$/, "$1 . $2");
  return text.endsWith(` : ${element}`) || text.endsWith(` --to-destination ${endpoint}`) ||
    text.includes(` -r ${endpoint} `);
}

for (const mode of BACKEND_MODES) {
  for (const [table, cases] of TABLES) {
    const concerns = ({ cases: test }: PacketFlowSkip) =>
      typeof test === "function" && cases.some(test);
    runPacketFlowSuite({
      name: `explain in mode ${mode}, ${table}`,
      cases,
      skip: [NO_SCTP].filter((skip) => mode === "userspace" && concerns(skip)),
      adapt: MODE_ADAPTATIONS[mode].filter(concerns),
      execute: (packet) =>
        outcomeOf(explainCase(explainStage(mode, packet.scenario, packet.family), packet)),
    });
  }

  Deno.test(`explain in mode ${mode} names carriers that it renders, and those of all endpoints that may get it`, () => {
    for (const [table, cases] of TABLES) {
      for (const packet of cases) {
        const stage = explainStage(mode, packet.scenario, packet.family);
        const text = [...stage.backend.render(stage.plan)].join("");
        const { carriers, endpoints, verdict } = explainCase(stage, packet);
        const where = `${table}: ${packet.name}`;
        for (const carrier of carriers) {
          assert(
            text.includes(carrier.text) && carrier.text !== "",
            `${where}\n${JSON.stringify(carrier, undefined, 2)}\n${text}`,
          );
        }
        if (verdict.kind !== "unclaimed") assert(carriers.length > 0, `${where}: no carrier`);
        if (mode !== "userspace") {
          const named = endpoints.filter(({ key }) => carriers.some((each) => leadsTo(each, key)));
          assertEquals(named, endpoints.filter(({ eligible }) => eligible), where);
        }
        const isKept = verdict.kind === "unclaimed" && verdict.outcome !== "passes";
        if (mode === "nftables" && isKept) assert(carriers.length > 0, `${where}: no carrier`);
      }
    }
  });
}

/** The rules and elements that packets to every Service meet, as a walk names them. */
const FIXED: Readonly<Record<Exclude<BackendMode, "userspace">, RegExp>> = {
  nftables: /^(?:rule (?:nat-|services:|unclaimed)|set element node-port-ips:)/,
  iptables: /: -I |-A KUBE-(?:MARK-MASQ|POSTROUTING|FORWARD) |-j KUBE-(?:EXTERNAL-)?NODEPORTS$/,
  ipvs: /: -[AI] (?!KUBE-FROM-CLUSTER -d |-)/,
};

function traced(mode: Exclude<BackendMode, "userspace">, packet: PacketFlowCase): PacketOutcome {
  const { scenario, family } = packet;
  switch (mode) {
    case "nftables":
      return executeOnNft(nftScenarioTable(scenario, family), packet);
    case "iptables":
      return executeOnIptables(scenarioRules(scenario, family), packet);
    case "ipvs":
      return executeOnIpvs(ipvsScenarioKernel(scenario, family), packet);
  }
}

for (const mode of ["iptables", "ipvs", "nftables"] as const) {
  Deno.test(`explain in mode ${mode} names what a walk through all rules meets, in the same order`, () => {
    for (const [table, cases] of TABLES) {
      for (const packet of cases) {
        const stage = explainStage(mode, packet.scenario, packet.family);
        const { carriers, verdict } = explainCase(stage, packet);
        if (verdict.kind === "unclaimed") continue;
        const where = `${table}: ${packet.name}`;
        const named = carriers.map(({ object, name, text }) =>
          mode === "nftables" ? `${object} ${name}: ${text}` : `${name}: ${text}`
        );
        assertEquals(new Set(named).size, named.length, where);
        const isRefusal = (each: string) => /NO-LOCAL-|-j (?:DROP|REJECT)$/.test(each);
        if (verdict.kind === "forward") assertEquals(named.filter(isRefusal), [], where);
        if (verdict.kind === "drop" && verdict.why === "source-ranges") {
          assert(!named.some((each) => /endpoints|virtual server|SERVED/.test(each)), where);
        }
        const paths = traced(mode, packet).trace?.join("\n").split(/^= .*\n?/m) ?? [];
        const rule = named.find((each) => each.includes("KUBE-FROM-CLUSTER"));
        assert(rule === undefined || paths.some((path) => path.includes(rule)), where);
        for (const path of paths) {
          const met = [...new Set(path.split("\n"))].filter((each) => each !== "");
          const places = met.filter((each) => !FIXED[mode].test(each))
            .map((each) => named.indexOf(each));
          assert(!places.includes(-1), `${where}\n${path}\nnamed:\n${named.join("\n")}`);
          // The rules of a chain stand together, and a choice is looked up between two of them. Ipvs
          // looks into one set twice.
          const inOrder = places.filter((place) => !/choices: |-SERVED: /.test(named[place]!));
          assertEquals(inOrder, inOrder.toSorted((one, other) => one - other), `${where}\n${path}`);
        }
      }
    }
  });
}

Deno.test("explain has the reason of each endpoint that is left out, for every row", () => {
  for (const packet of PACKET_FLOW_CASES) {
    const stage = explainStage("iptables", packet.scenario, packet.family);
    const { endpoints, verdict } = explainCase(stage, packet);
    if (verdict.kind !== "forward") continue;
    assertEquals(
      endpoints.filter(({ eligible, exclusion }) => eligible === (exclusion !== undefined)),
      [],
      packet.name,
    );
  }
});

/** Explains a connection from the node to the load balancer of a row. */
function fromNode(mode: BackendMode, name: string, { source, ranges }: {
  readonly source: "loadBalancerIp" | "nodeSecond";
  readonly ranges: readonly string[];
}): readonly [outcome: PacketVerdict, carried: readonly EndpointKey[]] {
  const { scenario } = PACKET_FLOW_CASES.find((row) => row.scenario.name === name)!;
  const services = scenario.services.map((service) => ({
    ...service,
    spec: { ...service.spec, loadBalancerSourceRanges: [...ranges] },
  }));
  const { plan, backend } = explainStage(mode, { ...scenario, services }, "IPv4");
  const explanation = explainPacket(plan, {
    from: { kind: "node", address: ADDRESSES.IPv4[source] },
    to: ADDRESSES.IPv4.loadBalancerIp,
    port: parsePort(80),
    protocol: "TCP",
  }, backend);
  const { carriers, endpoints } = explanation;
  const carried = endpoints.map(({ key }) => key)
    .filter((key) => carriers.some((carrier) => leadsTo(carrier, key)));
  return [outcomeOf(explanation).verdict, carried];
}

for (const mode of BACKEND_MODES) {
  Deno.test(`explain in mode ${mode} admits the node's own sources as the mode does`, () => {
    // Where the address is bound, the kernel chooses it as the source.
    const { bindsAddresses } = MODE_TRAITS[mode];
    const rows = [
      ["loadBalancerIp", "192.168.0.0/24", true],
      ["loadBalancerIp", "203.0.113.0/24", false],
      ["nodeSecond", "192.168.0.0/24", bindsAddresses],
      ["nodeSecond", "192.168.1.0/24", !bindsAddresses],
    ] as const;
    for (const policy of ["Cluster", "Local"]) {
      const name = policy === "Local"
        ? "LoadBalancer, source ranges and policy Local"
        : "LoadBalancer, source ranges";
      for (const [source, range, admitted] of rows) {
        const [outcome, carried] = fromNode(mode, name, { source, ranges: [range] });
        const all = ["10.180.0.1:8080", "10.180.1.1:8080"];
        // Userspace mode closes the TCP connection: it cannot drop it.
        const refusal = mode === "userspace" ? "REJECT" : "DROP";
        const where = `${policy}: ${source} with ${range}`;
        assertEquals(outcome, admitted ? all : refusal, where);
        if (mode !== "userspace") assertEquals(carried.length > 0, admitted, `rules, ${where}`);
      }
    }
  });
}

/** The effect of the rules on packets of no Service, traced through their text. */
const FATES = { UNCLAIMED: "passes", REJECT: "reject", DROP: "drop" } as const;

for (const mode of ["iptables", "nftables"] as const) {
  Deno.test(`explain knows the effect of mode ${mode} on packets of no Service`, () => {
    const seen = new Set<string>();
    for (const [table, cases] of TABLES) {
      for (const packet of cases) {
        const { scenario, family } = packet;
        // The tracer does not know which address of the node comes first.
        if (scenario.settings?.nodePortAddresses === undefined && mode === "nftables") {
          const { loopback, nodeSecond } = ADDRESSES[family];
          if (packet.to === loopback || packet.to === nodeSecond) continue;
        }
        const { verdict } = explainCase(explainStage(mode, scenario, family), packet);
        if (verdict.kind !== "unclaimed") continue;
        const traced = mode === "iptables"
          ? executeOnIptables(scenarioRules(scenario, family), packet)
          : executeOnNft(nftScenarioTable(scenario, family), packet);
        const found = traced.verdict as keyof typeof FATES;
        assertEquals(verdict.outcome, FATES[found], `${table}: ${packet.name}`);
        seen.add(verdict.outcome);
      }
    }
    assertEquals([...seen].sort(), mode === "iptables" ? ["passes"] : ["drop", "passes", "reject"]);
  });
}
