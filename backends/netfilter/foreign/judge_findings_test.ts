import { assertEquals, assertStringIncludes } from "@std/assert";
import type { ChainCount } from "./chain_counts.ts";
import type { HostContents } from "./host_contents.ts";
import type { RuleSetContents } from "../iptables/iptables_rule_set.ts";
import { judgeFindings, type SeenOnHost } from "./judge_findings.ts";

const NOTHING: HostContents = {
  worlds: [],
  nftTables: [],
  sets: [],
  devices: [],
  virtualServers: [],
  unseen: [],
};

function seen(look: Partial<HostContents> = {}, more: Partial<SeenOnHost> = {}): SeenOnHost {
  return { look: { ...NOTHING, ...look }, chains: [], own: {}, impostors: [], ...more };
}

function chains(owner: ChainCount["owner"], label: string): ChainCount[] {
  return [{ owner, label, table: "nat", world: "iptables-nft", count: 3 }];
}

function world(
  variant: "nft" | "legacy",
  rules: number,
  ...names: readonly string[]
): RuleSetContents {
  const chains = new Map(names.map((name) => [name, rules]));
  const table = { name: "nat", builtIn: new Set<string>(), chains, jumps: [], rules };
  return {
    world: { family: "IPv4", variant },
    dump: { tables: [table], unreadable: [] },
    restoreProgram: "",
  };
}

const SERVER = {
  role: "server",
  disableKubeProxy: false,
  disableNetworkPolicy: false,
  disableServiceLb: false,
} as const;
const LIVE = { mode: "iptables", evidence: ["127.0.0.1:10249/proxyMode says iptables"] };
const OTHER_ENFORCERS = [
  { family: "ip", name: "calico" },
  { family: "inet", name: "kube-network-policies" },
];
const LOOK_ALIKES = [
  { family: "inet", name: "calico" },
  { family: "ip", name: "kube-network-policies" },
  { family: "ip", name: "kube-router-filter-ipv6" },
];
const KUBE_PROXY = { family: "ip", name: "kube-proxy" };

const CASES: readonly (readonly [what: string, seen: SeenOnHost, findings: readonly string[]])[] = [
  ["nothing", seen(), []],
  ["chains of kubelet", seen({}, { chains: chains("kubelet", "KUBE-FIREWALL") }), []],
  [
    "a kube-proxy that answers, with its rules",
    seen({ nftTables: [KUBE_PROXY] }, { live: LIVE, chains: chains("kube-proxy", "KUBE-SVC-…") }),
    ["blocking kube-proxy-alive"],
  ],
  [
    "rules of all modes",
    seen({
      nftTables: [KUBE_PROXY],
      devices: ["kube-ipvs0"],
    }, { chains: chains("kube-proxy", "KUBE-SVC-…") }),
    ["iptables", "nftables", "ipvs"].map((mode) => `warning kube-proxy-leftovers-${mode}`),
  ],
  [
    "what the running mode keeps",
    seen({ nftTables: [KUBE_PROXY], devices: ["kube-ipvs0"], sets: ["KUBE-IPVS-IPS"] }, {
      own: { nftTable: () => true, device: () => true, set: () => true },
    }),
    [],
  ],
  ["a k3s server with kube-proxy", seen({}, { nodeArgs: SERVER }), ["warning k3s-kube-proxy-on"]],
  ["a k3s agent, whose server decides", seen({}, { nodeArgs: { ...SERVER, role: "agent" } }), []],
  [
    "a k3s server without kube-proxy, with host ports",
    seen({}, {
      nodeArgs: { ...SERVER, disableKubeProxy: true },
      chains: chains("portmap", "CNI-HOSTPORT-…"),
    }),
    ["info klipper-service-lb"],
  ],
  [
    "k3s's network policies",
    seen({ sets: ["KUBE-SRC-AAAAAAAAAAAAAAAA"] }, {
      chains: chains("kube-router", "KUBE-ROUTER-…"),
    }),
    ["info kube-router-policies"],
  ],
  [
    "network policies that k3s is configured to leave",
    seen({}, {
      chains: chains("kube-router", "KUBE-POD-FW-…"),
      nodeArgs: { ...SERVER, disableKubeProxy: true, disableNetworkPolicy: true },
    }),
    ["warning kube-router-policies"],
  ],
  [
    "other enforcers, where kube-relay enforces no policies",
    seen({ nftTables: OTHER_ENFORCERS, sets: ["cali40s:x", "cali60all"] }, {
      chains: chains("cilium", "CILIUM_…"),
    }),
    ["info calico-policies", "info cilium-policies", "info kube-network-policies"],
  ],
  [
    "other enforcers, where kube-relay enforces policies too",
    seen({ nftTables: [...OTHER_ENFORCERS, { family: "ip6", name: "kube-router-filter-ipv6" }] }, {
      chains: [...chains("calico", "cali-…"), ...chains("cilium", "CILIUM_…")],
      networkPolicy: true,
    }),
    ["kube-router-policies", "calico-policies", "cilium-policies", "kube-network-policies"].map(
      (id) => `warning ${id}`,
    ),
  ],
  ["a table of another name or family", seen({ nftTables: LOOK_ALIKES }), []],
  [
    "kube-router's service proxy",
    seen({ devices: ["kube-dummy-if"] }),
    ["warning kube-router-service-proxy"],
  ],
  ["one iptables world", seen({ worlds: [world("nft", 9), world("legacy", 0)] }), []],
  [
    "two iptables worlds",
    seen({ worlds: [world("nft", 9), world("legacy", 1)] }),
    ["warning two-iptables-worlds"],
  ],
  [
    "rules of kube-relay in another mode",
    seen({ nftTables: [{ family: "ip", name: "kube-relay" }] }),
    ["warning kube-relay-other-mode"],
  ],
  [
    "its own rules of policies next to a mode without tables, and what it masquerades and traces",
    seen({
      nftTables: ["kube-relay-policy", "kube-relay-pods", "kube-relay-trace-7-a"].flatMap((
        name,
      ) => [
        { family: "ip", name },
        { family: "ip6", name },
      ]),
    }, { networkPolicy: true }),
    [],
  ],
  [
    "rules of policies that nothing updates, also next to nftables mode",
    seen({ nftTables: [{ family: "ip", name: "kube-relay-policy" }] }, {
      own: { nftTable: () => true },
    }),
    ["warning kube-relay-policies-left"],
  ],
  [
    "rules of policies in iptables that nothing updates",
    seen({ worlds: [world("nft", 9, "KUBE-RELAY-POLICY")] }),
    ["warning kube-relay-policies-left"],
  ],
  [
    "its own rules of policies in iptables",
    seen({ worlds: [world("nft", 9, "KUBE-RELAY-POLICY")] }, { networkPolicy: true }),
    [],
  ],
  ["less than all", seen({ unseen: ["ipsets: not permitted"] }), ["info not-looked-at"]],
];

for (const [what, input, expected] of CASES) {
  Deno.test(`judgeFindings() reports ${what}`, () => {
    const findings = judgeFindings(input);
    assertEquals(findings.map(({ severity, id }) => `${severity} ${id}`), expected);
    for (const { summary, evidence, id } of findings) {
      assertEquals(summary.endsWith("."), false, summary);
      assertEquals(evidence.length > 0, true, id);
    }
  });
}

Deno.test("judgeFindings() puts blocking findings first, and says how to turn kube-proxy off", () => {
  const findings = judgeFindings(
    seen({ unseen: ["x: y"], worlds: [world("nft", 1), world("legacy", 1)] }, {
      live: LIVE,
      nodeArgs: SERVER,
    }),
  );
  assertEquals(findings.map(({ severity }) => severity), [
    "blocking",
    "warning",
    "warning",
    "info",
  ]);
  for (const words of ["--disable-kube-proxy", "DaemonSet", "systemctl", "--takeover"]) {
    assertStringIncludes(findings[0]!.cure!, words);
  }
});

Deno.test("judgeFindings() says how to move from k3s's policies, by how k3s was started", () => {
  const cureOf = (more: Partial<SeenOnHost>) => {
    const policies = { chains: chains("kube-router", "KUBE-POD-FW-…"), ...more };
    const findings = judgeFindings(seen({}, policies));
    return findings.find(({ id }) => id === "kube-router-policies")!.cure;
  };
  const off = { ...SERVER, disableNetworkPolicy: true };
  assertEquals(cureOf({}), undefined, "nothing has to be done where it may stay");
  assertStringIncludes(cureOf({ networkPolicy: true })!, "--run-firewall=false");
  const running = cureOf({ networkPolicy: true, nodeArgs: SERVER })!;
  assertStringIncludes(running, "start k3s with --disable-network-policy");
  assertStringIncludes(running, "--network-policy --takeover");
  assertEquals(cureOf({ nodeArgs: off })!.startsWith("start kube-relay once"), true);
});
